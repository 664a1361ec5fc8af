"""The audit of changes put together: its files, and what hands it the requests. Wiring only, run
once by BrokerController.

Tested by tests/broker/wiring/test_routes.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from broker.acl.request_guard import RequestGuard
from broker.admin.admin_audit import AdminAudit
from broker.admin.admin_audit_files import AdminAuditFiles
from broker.wiring.process_resources import ProcessResources
from broker.wiring.routes import ADMIN_POOL, runs_on_loop
from remoting.request_executor import RequestExecutor


def admin_audit(
    resources: ProcessResources, guard: RequestGuard, executors: Mapping[str, RequestExecutor]
) -> AdminAudit:
    """It hears of what `guard` refuses; what is served it hears of through `over`."""

    def in_pool(write: Callable[[], None]) -> bool:
        return executors[ADMIN_POOL].try_submit(write, lambda _remark: None)

    files = AdminAuditFiles(resources.options.store.config_path)
    audit = AdminAudit(files, resources.clock, guard.signer_of, runs_on_loop, in_pool)
    guard.on_refused = audit.refused
    return audit

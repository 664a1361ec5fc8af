"""DamageRepair: what finds and repairs damage of the log with the group's help, put together.

Built once on the main thread of process `remoting`. `service` is the one repairing thread;
`processor` answers operators and other brokers on pool threads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from broker.admin.admin_scrub_processor import AdminScrubProcessor
from broker.slave.chunk_repair import ChunkRepair
from broker.slave.damage_repair_service import DamageRepairService
from broker.slave.digest_comparison import DigestComparison
from broker.slave.fence_repair import FenceRepair
from broker.slave.group_members import FindMembers, MemberAddress
from broker.slave.repair_commands import RepairCommands
from broker.wiring.process_resources import ProcessResources
from ipc.command_channel import CommandClient
from ipc.service_thread import FailureHandler
from remoting.remoting_client import RemotingClient
from store.commit_log_reader import CommitLogReader
from store.log_digests import LogDigests

if TYPE_CHECKING:
    from broker.slave.remembered_replicas import RememberedReplicas


class DamageRepair:
    """See the module. Owned by: Replication."""

    def __init__(
        self,
        resources: ProcessResources,
        client: RemotingClient,
        members: FindMembers,
        is_proved: Callable[[MemberAddress], bool],
        replicas: RememberedReplicas | None,
        store: CommandClient,
        claim: Callable[[bytes], None],
        *,
        on_failure: FailureHandler,
    ) -> None:
        """members: the group's other brokers. is_proved: whether one is known to be that.
        replicas: a master's; None on a slave. store: the commands of process `store`. claim:
        StoreSide.claim_queue_offsets."""
        config, page, clock = resources.options.store, resources.page, resources.clock
        directories, size = config.log_directories, config.mapped_file_size_commit_log
        commands = RepairCommands(store, config.root / "repair.bytes")
        digests = LogDigests(config.commit_log_path)
        reader = CommitLogReader(directories, size, page)
        chunks = ChunkRepair(client, reader, commands, clock)
        self.service: Final = DamageRepairService(
            members,
            FenceRepair(members, client, reader, commands, clock, claim, replicas),
            commands,
            DigestComparison(client, digests, chunks, commands, is_proved),
            page,
            clock,
            on_failure=on_failure,
        )
        self.processor: Final = AdminScrubProcessor(
            self.service, commands, digests, CommitLogReader(directories, size, page), page
        )

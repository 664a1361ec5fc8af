"""Name servers and brokers of both worlds behind one interface, so that a test can mix them.

`name_server(kind, dir)` and `broker(kind, dir, ...)` give servers that are not started yet. A kind
is "ours", "java-4.9", "java-5.3" or "java-5.5" (which release that is: java_peers.py). Everything
lives on loopback and under the directory given; `store_dir` hands a store to the next broker.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from remoting.request_code import RequestCode
from tests.interop.java_peers import LINE_5, QUICK_JVM, java_command, proxy_lib, server_lib
from tests.interop.processes import PeerError, ServerProcess, wait_until
from tests.support.our_broker import FrameClient
from tools.chaos.free_ports import free_port

REPO_DIR = Path(__file__).resolve().parents[2]
Connect = Callable[[tuple[str, int], float], FrameClient]
KINDS = ("ours", "java-4.9", "java-5.3", "java-5.5")

_BROKER_READY = r"The broker\[([^,\]]+), ([0-9.]+):(\d+)\] boot success"
_NAMESRV_READY = r"The Name Server boot success"
_CONTROLLER_READY = r"The Controller Server boot success"
_PROXY_READY = r"rocketmq-proxy startup successfully"
BROKER_MAIN = "broker.BrokerStartup"
CONTROLLER_MAIN = "controller.ControllerStartup"
DISK_FLAGS = (
    "-Drocketmq.broker.diskSpaceWarningLevelRatio=0.99",
    "-Drocketmq.broker.diskSpaceCleanForciblyRatio=0.98",
)
# So that several brokers of ours find free ports; a slave asks for the tables every ten seconds
# otherwise.
_ONLY_OURS = {
    "metricsPort": "0",
    "metricsAddress": "127.0.0.1",
    "embeddedNamesrvPort": "0",
    "slaveSyncInterval": "1000",
}
# The threads of its timers for arbitrary delays, which nobody uses here, never sleep for long.
# Their TransactionMetricsFlushService spins for a whole interval before it first waits, 10 s if
# unset: a third of a core for most brokers' lives here.
_ONLY_5 = {"timerWheelEnable": "false", "transactionMetricFlushInterval": "500"}
KINDS_5 = ("java-5.3", "java-5.5")
JAVA_5 = f"java-{LINE_5}"
"""The kind of 5.x."""
_LOGBACK = """<configuration>
  <appender name="file" class="ch.qos.logback.core.FileAppender">
    <file>{log}</file>
    <encoder><pattern>%d %p %t %logger{{0}} - %m%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="file"/></root>
</configuration>
"""
_LOGBACK_NAMES = (
    "logback_broker.xml",
    "logback_namesrv.xml",
    "logback_tools.xml",
    "rmq.broker.logback.xml",
    "rmq.controller.logback.xml",
    "rmq.namesrv.logback.xml",
    "rmq.proxy.logback.xml",
)


# Whatever is not said, both worlds allocate whole: 1 GiB for a log, and the next one, 400 MB for an
# index. Tests of a run together had 21 GB after five minutes.
_SMALL_FILES = {
    "mappedFileSizeCommitLog": str(16 << 20),
    "mappedFileSizeConsumeQueue": "120000",
    "maxHashSlotNum": "50000",
    "maxIndexNum": "200000",
}


class NameServer:
    """A name server of either world."""

    def __init__(self, process: ServerProcess, port: int) -> None:
        self._process = process
        self._port = port

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    def start(self) -> NameServer:
        self._process.start()
        return self

    def stop(self) -> None:
        self._process.stop()

    def pause(self) -> None:
        """It answers nobody; returns when it stands still."""
        self._process.pause()

    def resume(self) -> None:
        """After `pause`."""
        self._process.resume()

    def log_tail(self) -> str:
        return self._process.log_tail()


class Broker:
    """A broker of either world, its settings and its store directory."""

    def __init__(
        self,
        kind: str,
        process: ServerProcess,
        name: str,
        port: int,
        store_dir: Path,
        namesrv: str | None,
    ) -> None:
        self.kind = kind
        self.process = process
        self.name = name
        self.store_dir = store_dir
        self._port = port
        self._namesrv = namesrv
        self.connect: Connect = FrameClient
        """How clients come to it, and to its name server."""

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    @property
    def port(self) -> int:
        return self._port

    def configure(self, **settings: str) -> None:
        """More settings, for the next start; the last one of a key counts."""
        with (self.process.log_path.parent / "broker.conf").open("a") as file:
            file.writelines(f"{key}={value}\n" for key, value in settings.items())

    def start(self) -> Broker:
        """Start and wait for the boot line, whose port is the real one."""
        self._port = int(self.process.start().group(3))
        if self.kind in KINDS_5 and self._namesrv is not None:
            wait_until(self._registers, f"{self.process.name} registered", poll_s=0.2)
        return self

    def _registers(self) -> bool:
        """A 5.x broker registers 10 to 20 s after its boot, and at once when a setting is set."""
        with self.client() as client:
            client.call(RequestCode.UPDATE_BROKER_CONFIG, {}, b"brokerPermission=6\n")
        host, _, port = str(self._namesrv).partition(";")[0].rpartition(":")
        with self.connect((host, int(port)), 60.0) as client:
            known = client.call(RequestCode.GET_BROKER_CLUSTER_INFO, {}).body
        return f'"{self.address}"'.encode() in known

    def stop(self) -> None:
        """Clean stop (SIGTERM)."""
        self.process.stop()

    def kill(self) -> None:
        """SIGKILL of every process of the broker."""
        self.process.kill()

    def end(self) -> None:
        """The end of a test: ours in order. Java's, which takes 8 (4.9) or 12 s (5.3), by kill."""
        if self.kind == "ours":
            self.stop()
        else:
            self.kill()

    def client(self, timeout_s: float = 60.0) -> FrameClient:
        """A connection to its port."""
        return self.connect(("127.0.0.1", self._port), timeout_s)

    def log_tail(self) -> str:
        return self.process.log_tail()


def name_server(
    kind: str,
    directory: Path,
    *,
    port: int | None = None,
    settings: Mapping[str, str] | None = None,
    jvm: Sequence[str] = (),
) -> NameServer:
    """A name server of `kind`, with its files under `directory`; jvm: more of Java's options."""
    port = port or free_port()
    keys = {"listenPort": str(port), **(settings or {})}
    conf = _write_properties(directory / "namesrv.conf", keys)
    log = directory / "namesrv.log"
    label = f"{kind} name server"
    if kind == "ours":
        command = [sys.executable, "-m", "namesrv", "-c", str(conf)]
        return NameServer(
            ServerProcess(label, command, log, _NAMESRV_READY, _our_env(directory)), port
        )
    flags = (*QUICK_JVM, "-Xms64m", "-Xmx128m", *jvm)
    command = java_server(kind, directory, "namesrv.NamesrvStartup", flags, ["-c", str(conf)])
    return NameServer(ServerProcess(label, command, log, _NAMESRV_READY), port)


def broker(
    kind: str,
    directory: Path,
    namesrv: str | None,
    *,
    name: str = "broker-a",
    port: int | None = None,
    store_dir: Path | None = None,
    conf: Mapping[str, str] | None = None,
    jvm: tuple[str, ...] = (*QUICK_JVM, "-Xms256m", "-Xmx512m"),
    env: Mapping[str, str] | None = None,
) -> Broker:
    """A broker of `kind` that registers with `namesrv` ("ip:port;ip:port").

    `conf` overrides settings (Java's key names, also for ours). `namesrv` None: ours serves the
    routes itself. `env`: more of its environment.
    """
    port = port or free_port(-2, 1)
    store = store_dir or directory / "store"
    special = {"ours": _ONLY_OURS, **dict.fromkeys(KINDS_5, _ONLY_5)}.get(kind, {})
    settings = {**_settings(name, port, store), **special, **(conf or {})}
    conf_path = _write_properties(directory / "broker.conf", settings)
    args = ["-c", str(conf_path), *(["-n", namesrv] if namesrv else [])]
    log = directory / "broker.log"
    label = f"{kind} broker {name}"
    if kind == "ours":
        command = [sys.executable, "-m", "broker", *args]
        own = {**_our_env(directory), **(env or {})}
        process = ServerProcess(label, command, log, _BROKER_READY, own)
        return Broker(kind, process, name, port, store, namesrv)
    command = java_server(kind, directory, BROKER_MAIN, (*jvm, *DISK_FLAGS), args)
    process = ServerProcess(label, command, log, _BROKER_READY, env)
    return Broker(kind, process, name, port, store, namesrv)


class Controller:
    """A controller of either world, one node; 5.3.3's is of the DLedger kind. What outlives it is
    its store."""

    def __init__(self, process: ServerProcess, port: int) -> None:
        self._process = process
        self._port = port

    @property
    def process(self) -> ServerProcess:
        """Its one process."""
        return self._process

    @property
    def address(self) -> str:
        """Of the peer's port, which brokers and admins use, too."""
        return f"127.0.0.1:{self._port}"

    def start(self) -> Controller:
        self._process.start()
        return self

    def stop(self) -> None:
        """In order, which takes ten seconds of 5.3.3's."""
        self._process.stop()

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()

    def pause(self) -> None:
        """SIGSTOP."""
        self._process.pause()

    def resume(self) -> None:
        """SIGCONT after `pause`."""
        self._process.resume()

    def log_tail(self) -> str:
        return self._process.log_tail()


def controller(
    directory: Path,
    settings: Mapping[str, str] | None = None,
    *,
    kind: str = JAVA_5,
    port: int | None = None,
    jvm: Sequence[str] = (),
) -> Controller:
    """A controller with its files under `directory`. settings: more of them. jvm: more of Java's
    options."""
    port, unused = port or free_port(), free_port()
    keys = {
        "listenPort": str(unused),
        "controllerDLegerGroup": "group1",
        "controllerDLegerPeers": f"n0-127.0.0.1:{port}",
        "controllerDLegerSelfId": "n0",
        "controllerStorePath": str(directory / "store"),
        "mappedFileSize": "16777216",
        **(settings or {}),
    }
    conf = _write_properties(directory / "controller.conf", keys)
    log = directory / "controller.log"
    if kind == "ours":
        command = [sys.executable, "-m", "controller", "-c", str(conf)]
        env = _our_env(directory)
        return Controller(ServerProcess("controller", command, log, _CONTROLLER_READY, env), port)
    flags = (*QUICK_JVM, "-Xms64m", "-Xmx256m", *jvm)
    command = java_server(kind, directory, CONTROLLER_MAIN, flags, ["-c", str(conf)])
    return Controller(ServerProcess("controller", command, log, _CONTROLLER_READY), port)


class Proxy:
    """A proxy of 5.x in cluster mode."""

    def __init__(self, process: ServerProcess, port: int) -> None:
        self.process = process
        self._port = port

    @property
    def endpoints(self) -> str:
        """Where its gRPC clients connect."""
        return f"127.0.0.1:{self._port}"

    def start(self) -> Proxy:
        self.process.start()
        return self

    def stop(self) -> None:
        """By kill: an orderly end waits 30 s for clients."""
        self.process.kill()

    def log_tail(self) -> str:
        return self.process.log_tail()


def proxy(directory: Path, namesrv: str, jvm: Sequence[str] = ("-Xms64m", "-Xmx256m")) -> Proxy:
    """Java's proxy, with its files under `directory`, before the cluster of `broker`."""
    port = free_port()
    home = _java_home(directory)
    conf = directory / "proxy.json"
    settings = {
        "rocketMQClusterName": "InteropCluster",
        "namesrvAddr": namesrv,
        "proxyMode": "cluster",
        "grpcServerPort": port,
        "remotingListenPort": free_port(),
        "localServeAddr": "127.0.0.1",
        # A producer of transactions is known to the broker from the first of these on.
        "transactionHeartbeatPeriodSecond": 1,
        # An end in order, which only an archive of its classes needs, waits that long for clients.
        "grpcShutdownTimeSeconds": 1,
        # So that a consumer that finds nothing says so soon.
        "grpcClientConsumerMinLongPollingTimeoutMillis": 1000,
        # A message that a test has delivered for the last time is looked for soon.
        "renewSchedulePeriodMillis": 1000,
    }
    conf.write_text(json.dumps(settings))
    main = "org.apache.rocketmq.proxy.ProxyStartup"
    flags = (*QUICK_JVM, *jvm, f"-Drocketmq.home.dir={home}")
    command = java_command(
        f"{proxy_lib()}/*", main, home, jvm=flags, args=["-pc", str(conf), "-n", namesrv]
    )
    env = {"ROCKETMQ_HOME": str(home), "RMQ_PROXY_HOME": str(home)}
    log = directory / "proxy.log"
    return Proxy(ServerProcess("proxy", command, log, _PROXY_READY, env), port)


def our_admin(directory: Path, *arguments: str, java_options: Sequence[str] = ()) -> str:
    """What our mqadmin prints; java_options: JAVA_OPT_EXT. Raises PeerError when it fails."""
    env = {**_our_env(directory), "JAVA_OPT_EXT": " ".join(java_options)}
    return _output([sys.executable, "-m", "tools.mqadmin", *arguments], env)


def java_admin(line: str, directory: Path, *arguments: str, jvm: Sequence[str] = ()) -> str:
    """What the mqadmin of a Java line ("4.9") prints. Raises PeerError when it fails."""
    home = _java_home(directory)
    main = "org.apache.rocketmq.tools.command.MQAdminStartup"
    flags = (*QUICK_JVM, f"-Drocketmq.home.dir={home}", *jvm)
    classpath = f"{server_lib(line)}/*"
    command = java_command(classpath, main, home, jvm=flags, args=arguments)
    return _output(command, {"ROCKETMQ_HOME": str(home)})


def java_server(
    kind: str, directory: Path, main: str, jvm: Sequence[str], args: Sequence[str]
) -> list[str]:
    """The command line of a server of RocketMQ with its files under `directory`."""
    home = _java_home(directory)
    return java_command(
        _server_classpath(kind),
        f"org.apache.rocketmq.{main}",
        home,
        jvm=(*jvm, f"-Drocketmq.home.dir={home}"),
        args=args,
    )


def _output(command: list[str], env: Mapping[str, str]) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, env={**os.environ, **env}, check=False
    )
    if done.returncode != 0:
        raise PeerError(f"{command[-4:]}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def _settings(name: str, port: int, store: Path) -> dict[str, str]:
    return {
        "brokerClusterName": "InteropCluster",
        "brokerName": name,
        "brokerId": "0",
        "brokerIP1": "127.0.0.1",
        "brokerIP2": "127.0.0.1",
        "listenPort": str(port),
        "storePathRootDir": str(store),
        "storePathCommitLog": str(store / "commitlog"),
        "brokerRole": "ASYNC_MASTER",
        "flushDiskType": "ASYNC_FLUSH",
        "diskMaxUsedSpaceRatio": "95",
        "autoCreateTopicEnable": "true",
        # Java's refuse what has waited for 200 ms, which is nothing on a busy machine.
        "waitTimeMillsInSendQueue": "10000",
        **_SMALL_FILES,
    }


def _write_properties(path: Path, settings: Mapping[str, str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return path


def _server_classpath(kind: str) -> str:
    found = re.fullmatch(r"java-(\d\.\d)", kind)
    if found is None:
        raise PeerError(f"no kind of server {kind!r}: one of {', '.join(KINDS)}")
    return f"{server_lib(found.group(1))}/*"


def _java_home(directory: Path) -> Path:
    home = directory / "java-home"
    (home / "conf").mkdir(parents=True, exist_ok=True)
    for name in _LOGBACK_NAMES:
        (home / "conf" / name).write_text(_LOGBACK.format(log=home / "server.log"))
    return home


def _our_env(directory: Path) -> dict[str, str]:
    """Ours run under the interpreter of the tests, their files under `directory`."""
    return {
        "HOME": str(directory),
        "PYTHONPATH": str(REPO_DIR),
        "ROCKETMQ_HOME": str(REPO_DIR),
        "ROCKETMQ_RUN_DIR": str(directory / "run"),
    }


@contextmanager
def served(broker: Broker) -> Iterator[FrameClient]:
    """`broker` while it serves, with a client; stopped in order, or killed where a test fails."""
    broker.start()
    try:
        with broker.client() as client:
            yield client
        broker.stop()
    finally:
        broker.kill()

"""Joins a process that already runs to a named group of rsd, so that its MPI library forms one world of the group's members.

    import rsd_join
    place = rsd_join.join("actors", size=16)     # returns when sixteen processes have joined
    from mpi4py import MPI                       # MPI.COMM_WORLD has sixteen ranks

Needs a running daemon on this node (``rsd start``) and nothing beside the standard library. It must be called before the
MPI library is initialised; with mpi4py that is its import. Names, sizes and times mean what they mean to ``rsctl group exec``.

A process of Open MPI 5 that runs already, without a launcher, keeps its MPI.COMM_WORLD of one, but can get a process manager:

    rsd_join.attach()                            # from now on, MPI.Open_port, Publish_name, Comm.Accept and Comm.Connect work
"""

import fcntl
import json
import os
import re
import socket
import stat
import threading
import time
import urllib.parse
from typing import Callable, MutableMapping, NamedTuple, Optional, Union

__all__ = ["JoinError", "Place", "attach", "join"]

VERSION = 1
SOCKET = "join.sock"
#: The base directory of root's daemons, which may serve all users.
SYSTEM = "/run/rsd"
LINE_BYTES_MAX = 16 << 10
#: How long, and how often, a lost daemon is searched for, in seconds.
RETURN = 10.0
RETRY = 0.1
#: How long attaching may take, in seconds.
ATTACH = 60.0
#: Seconds of each unit that a time may be written in.
UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
NUMBER = r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)"
#: Variables of other launchers, which do not apply to this world.
PREFIXES = ("PMI_", "PMIX_SERVER_", "HYDI_", "OMPI_COMM_WORLD_", "MPISPAWN_", "MV2_COMM_WORLD_")
NAMES = ("PMIX_NAMESPACE", "PMIX_RANK", "OMPI_UNIVERSE_SIZE", "MPIRUN_RSH_LAUNCH", "MPI_LOCALNRANKS", "MPI_LOCALRANKID", "PRTE_LAUNCHED", "RSD_CPUS", "RSD_GPUS", "RSD_LISTEN_FD")


class JoinError(Exception):
    """Joining failed. ``code`` is rsctl's exit code (124: not complete in time); the text names what to do."""

    def __init__(self, code: int, text: str):
        super().__init__(text)
        self.code = code


class Place(NamedTuple):
    """This process among the members of its epoch."""

    group: str
    rank: int
    size: int
    local_rank: int
    local_size: int
    #: Counts from 1: each forming of the group is a new epoch.
    epoch: int
    #: The job number of the epoch, for rsctl.
    job: int
    #: The name of the node, its index, and the number of nodes.
    node: str
    node_index: int
    nodes: int


def join(
    group: str,
    size: Optional[int] = None,
    *,
    min: Optional[int] = None,
    max: Optional[int] = None,
    rank: Optional[int] = None,
    timeout: Union[None, float, str] = None,
    export: Optional[str] = None,
    dvm: Optional[str] = None,
    environ: Optional[MutableMapping[str, str]] = None,
    on_wait: Optional[Callable[[int, int], None]] = None,
) -> Place:
    """Waits until the group is complete, and sets this process's environment so that MPI libraries find its place in the group.

    size     the number of members, or min and max instead; neither if the group was created with a size.
    rank     the requested rank; by default ranks are assigned by node, then in order of arrival.
    timeout  seconds, or a text that rsctl accepts ("90s", "5m"); by default the group's own timeout, a minute. After it, JoinError
             124 lists the members that have joined and those that are missing.
    export   other frameworks to set variables for: "torch,nccl,nvshmem", one or several. Variables that
             are already set are not changed. The process need not use MPI then.
    dvm      name or state directory of the daemon; by default $RSD_DVM, or the only one that runs.
    environ  where to set the variables; by default os.environ.
    on_wait  called with (have, want) whenever the daemon reports how many members have joined.
    """
    environ = os.environ if environ is None else environ
    if export is None and _mpi_runs():
        raise JoinError(
            240,
            "MPI is initialised already, so this process cannot become a member: join first, then call MPI_Init or import"
            " mpi4py.MPI",
        )
    timeout = None if timeout is None else _seconds(timeout)
    state_dir = _state_dir(dvm or environ.get("RSD_DVM") or None)
    began = time.monotonic()
    token = None
    lost = None
    while True:
        left = None if timeout is None else _left_ms(timeout, began)
        try:
            fields = [("v", VERSION), ("group", group), ("size", size), ("min", min), ("max", max), ("rank", rank)]
            fields += [("timeout_ms", left), ("token", token), ("export", export)]
            for verb, words in _talk(os.path.join(_entry(state_dir), SOCKET), _line("join", fields)):
                lost = None
                if verb == "wait":
                    token = words["token"]
                    if on_wait is not None:
                        on_wait(int(words["have"]), int(words["want"]))
                elif verb == "go":
                    return _settle(group, words, state_dir, environ)
                elif verb == "error":
                    raise JoinError(int(words["code"]), words["text"])
                else:
                    raise JoinError(
                        244, f"the daemon says {verb!r}, which this client does not know: use programs of one release"
                    )
            raise ConnectionError("it closed the connection")
        except OSError as error:
            # The first connection must succeed; later ones wait for a daemon that restarts, which keeps the place.
            lost = lost or time.monotonic()
            if token is None or time.monotonic() - lost > RETURN:
                raise JoinError(242, f"no way to the daemon at {state_dir}: {error}; is it running? (rsd status)") from error
            time.sleep(RETRY)


def attach(*, timeout: Union[None, float, str] = None, dvm: Optional[str] = None) -> Place:
    """Connects this process, which already runs Open MPI 5 without a launcher, to rsd, as a job of its own.

    MPI.COMM_WORLD stays as it is: this process alone. What needs a process manager works from now on: MPI.Open_port, MPI.Publish_name
    and MPI.Lookup_name, Comm.Accept and Comm.Connect, with jobs and with other attached processes. MPI.Finalize ends the attachment.
    The environment stays as it is. A second call returns what the first one returned.

    timeout  seconds, or a text that rsctl accepts ("90s", "5m"); by default a minute. After it, JoinError 124.
    dvm      as for join().
    """
    timeout = ATTACH if timeout is None else _seconds(timeout)
    until = time.monotonic() + timeout
    with _attaching:
        if _attached and _attached[0] == os.getpid():
            return _attached[1]
        library = _pmix()
        own = _own_name(library, until)
        state_dir = _state_dir(dvm or os.environ.get("RSD_DVM") or None)
        words = _place_of_one(state_dir, own, timeout, until)
        uri = f"PMIX_SERVER_URI41;rsd.{words.get('node_index', '0')};tcp4://{words['pmi_port']}"
        _connect(library, uri, until)
        place = _place("", words)
        _attached[:] = [os.getpid(), place]
        return place


#: The pid and the place of this process, once it is attached.
_attached: list = []
_attaching = threading.Lock()


def _place_of_one(state_dir, namespace, timeout, until):
    """The daemon's words for a job of this process alone."""
    path = os.path.join(_entry(state_dir), SOCKET)
    fields = [("v", VERSION), ("timeout_ms", _left_ms(timeout, until - timeout)), ("namespace", namespace)]
    try:
        for verb, words in _talk(path, _line("join", fields), until):
            if verb == "go" and words.get("namespace") == namespace:
                return words
            if verb == "error":
                raise JoinError(int(words["code"]), words["text"])
            if verb != "wait":
                raise JoinError(244, "the daemon cannot attach processes: use programs of one release")
        raise ConnectionError("it closed the connection")
    except socket.timeout:
        raise JoinError(124, f"the daemon at {state_dir} did not answer in time; does it run? (rsd status)") from None
    except OSError as error:
        raise JoinError(242, f"no way to the daemon at {state_dir}: {error}; is it running? (rsd status)") from error


def _pmix():
    """The PMIx library of the running Open MPI in this process."""
    versions = " and ".join(sorted(_running_mpi()))
    if "Open MPI v4" not in versions:
        # Without MPI_Init, a session of MPI may be open.
        for path in _mapped("/libpmix"):
            try:
                import ctypes

                library = ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
                if library.PMIx_Initialized():
                    return library
            except (ImportError, OSError, AttributeError):
                continue
    if not versions:
        why = (
            "MPI is not initialised, so there is nothing to attach: join a group first, or attach after MPI_Init or the import of"
            " mpi4py.MPI"
        )
    elif "Open MPI" in versions:
        why = f"cannot attach {versions}: it decides in MPI_Init whether it has a process manager; join before, or use Open MPI 5"
    else:
        why = f"cannot attach {versions}: only Open MPI 5 can be attached, and others need it less (rsctl help groups)"
    raise JoinError(240, why)


def _mapped(part):
    """The paths of the libraries in this process's memory whose path contains a text."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
            return sorted({line.split(None, 5)[5].rstrip("\n") for line in maps if part in line})
    except OSError:
        return []


def _own_name(library, until):
    """The namespace that the process has given itself."""
    import ctypes

    class Proc(ctypes.Structure):
        _fields_ = [("namespace", ctypes.c_char * 256), ("rank", ctypes.c_uint32)]

    proc = Proc()

    def ask():
        # A further initialisation only counts, and so does the end of one that is not the last.
        library.PMIx_Init(ctypes.byref(proc), None, ctypes.c_size_t(0))
        library.PMIx_Finalize(None, ctypes.c_size_t(0))

    _within(until, ask)
    name = proc.namespace.decode(errors="replace")
    if not name.startswith("singleton."):
        raise JoinError(240, f"this process has a process manager already: a launcher started it, as rank {proc.rank} of {name}")
    return name


def _connect(library, uri, until):
    """Connects the PMIx library to a server, and passes on what Open MPI has told it since MPI_Init."""
    import ctypes

    # A pmix_info_t: key, flags, and a value with its type; the same in all versions from 4.2 to 6.1.
    text = ctypes.create_string_buffer(uri.encode())
    info = ctypes.create_string_buffer(552)
    info[: len(b"pmix.srvr.uri")] = b"pmix.srvr.uri"
    ctypes.c_uint16.from_buffer(info, 520).value = 3
    ctypes.c_void_p.from_buffer(info, 528).value = ctypes.addressof(text)
    failed = []

    def connect():
        kept = (text, info)  # the library may read them after the deadline
        failed.append(library.PMIx_Init(None, ctypes.byref(kept[1]), ctypes.c_size_t(1)))
        failed.append(failed[0] or library.PMIx_Commit())
        library.PMIx_Finalize(None, ctypes.c_size_t(0))

    _within(until, connect)
    if any(failed):
        raise JoinError(242, f"Open MPI's PMIx library cannot connect to the daemon's server (status {failed[-1]})")


def _within(until, call):
    """Calls it in a thread, because a call of a C library has no deadline of its own."""
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(max(0.0, until - time.monotonic()))
    if thread.is_alive():
        raise JoinError(124, "Open MPI's PMIx library did not answer in time")


def _mpi_runs():
    """Whether an MPI library that this process has loaded is initialised and not finalized."""
    return bool(_running_mpi())


def _running_mpi():
    """The first words of the versions of the MPI libraries in this process that are initialised and not finalized."""
    versions = set()
    for path in _mapped("/libmpi"):
        if re.match(r"libmpi(_abi|ch)?(-[0-9a-f]+)?\.so", os.path.basename(path)) is None:
            continue
        try:
            import ctypes

            library = ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
            begun, over = ctypes.c_int(0), ctypes.c_int(0)
            # Both may be called at any time.
            library.MPI_Initialized(ctypes.byref(begun))
            library.MPI_Finalized(ctypes.byref(over))
            if begun.value and not over.value:
                text, length = ctypes.create_string_buffer(8192), ctypes.c_int(0)
                library.MPI_Get_library_version(text, ctypes.byref(length))
                line = text.value.decode(errors="replace").partition("\n")[0].partition(",")[0]
                versions.add(" ".join(line.split()) or os.path.basename(path))
        except (ImportError, OSError, AttributeError):
            continue
    return versions


def _seconds(timeout):
    """A duration as rsctl accepts it: 250ms, 5s, 1.5h, 1m30s; a bare number is seconds."""
    if isinstance(timeout, str):
        if re.fullmatch(NUMBER, timeout.strip()):
            return float(timeout)
        parts = re.findall(rf"({NUMBER})\s*(ms|s|m|h|d)\s*", timeout)
        units = [UNITS[unit] for _, unit in parts]
        # The parts must cover the whole text, and each unit must be smaller than the one before it.
        if parts and units == sorted(set(units), reverse=True) and re.fullmatch(rf"\s*(({NUMBER})\s*(ms|s|m|h|d)\s*)+", timeout):
            return sum(float(number) * UNITS[unit] for number, unit in parts)
    elif not isinstance(timeout, (int, float)):
        raise TypeError(f"timeout is seconds, or a text such as '5s' or '2m', not {type(timeout).__name__}")
    elif 0 <= timeout < float("inf"):
        return timeout
    raise JoinError(240, f"invalid duration timeout={timeout!r}: use 250ms, 5s, 1m30s, 2h or 1d; a bare number is seconds")


def _left_ms(timeout, began):
    return max(0, int(timeout * 1000) - int((time.monotonic() - began) * 1000))


def _line(verb, fields):
    words = (f"{key}={urllib.parse.quote(str(value), safe='')}" for key, value in fields if value is not None)
    return (verb + " " + " ".join(words) + "\n").encode()


def _talk(path, request, until=None):
    """Yields the daemon's answers as (verb, {key: value}) until it closes; with a time, socket.timeout after it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stream:
        # The kernel accepts 107 bytes of path; a longer one is reached through the open directory.
        directory = os.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_DIRECTORY)
        wait = lambda: None if until is None else stream.settimeout(max(0.001, until - time.monotonic()))
        wait()
        try:
            stream.connect(path if len(os.fsencode(path)) < 108 else f"/proc/self/fd/{directory}/{os.path.basename(path)}")
        finally:
            os.close(directory)
        stream.sendall(request)
        rest = b""
        while True:
            wait()
            got = stream.recv(4096)
            if not got:
                return
            *lines, rest = (rest + got).split(b"\n")
            if len(rest) > LINE_BYTES_MAX:
                raise JoinError(244, "the daemon's answer is longer than any that this client knows")
            for line in lines:
                verb, *pairs = line.decode().split(" ")
                split = (pair.partition("=") for pair in pairs if pair)
                yield verb, {key: urllib.parse.unquote(value) for key, _, value in split}


def _settle(group, words, state_dir, environ):
    """Takes the place: sets the environment of a rank, and the address of its process manager."""
    for name in [name for name in environ if name.startswith(PREFIXES) or name in NAMES]:
        del environ[name]
    rank, size, local_rank, local_size = (words[key] for key in ("rank", "size", "local_rank", "local_size"))
    environ.update(
        PMI_PORT=words["pmi_port"],
        PMI_ID=words["pmi_id"],
        PMI_RANK=rank,
        PMI_SIZE=size,
        PMI_HOSTNAME=words["node"],
        MPI_LOCALRANKID=local_rank,
        MPI_LOCALNRANKS=local_size,
        MV2_COMM_WORLD_RANK=rank,
        MV2_COMM_WORLD_SIZE=size,
        MV2_COMM_WORLD_LOCAL_RANK=local_rank,
        MV2_COMM_WORLD_LOCAL_SIZE=local_size,
        RSD_GROUP=group,
        RSD_EPOCH=words["epoch"],
        RSD_JOB=words["job"],
        RSD_RANK=rank,
        RSD_SIZE=size,
        RSD_LOCAL_RANK=local_rank,
        RSD_LOCAL_SIZE=local_size,
        RSD_NODE=words.get("node_index", "0"),
        RSD_NODE_NAME=words["node"],
        RSD_PMI_NAMESPACE=words["namespace"],
        RSD_DVM=state_dir,
        RSD_SOCKET=os.path.join(_entry(state_dir), "rsd.sock"),
    )
    # The same port serves PMIx, which Open MPI speaks. MPICH 5 must be told which of the two to use.
    uri = f"rsd.{words.get('node_index', '0')};tcp4://{words['pmi_port']}"
    environ.update(
        PMIX_NAMESPACE=words["namespace"],
        PMIX_RANK=rank,
        PMIX_SERVER_URI41=uri,
        PMIX_SERVER_URI3=uri,
        PMIX_GDS_MODULE="hash",
        PMIX_SECURITY_MODE="native",
        PMIX_BFROP_BUFFER_TYPE="PMIX_BFROP_BUFFER_NON_DESC",
        PMIX_HOSTNAME=words["node"],
        PMIX_VERSION="4.2.2",
    )
    environ.setdefault("MPIR_CVAR_PMI_VERSION", "1")
    environ.setdefault("OMPI_MCA_schizo", "ompi")
    environ.pop("RSD_NODE_ADDRESS", None)
    if words.get("address"):
        environ["RSD_NODE_ADDRESS"] = words["address"]
    # Variables that an earlier place has set do not belong to the user.
    before = environ.pop("RSD_EXPORTED", "").split(",")
    pairs = [line.partition("=") for line in words.get("env", "").split("\n") if line]
    ours = {name: value for name, _, value in pairs if name not in environ or name in before}
    environ.update(ours)
    if ours:
        environ["RSD_EXPORTED"] = ",".join(ours)
    return _place(group, words)


def _place(group, words):
    numbers = {key: int(words[key]) for key in ("rank", "size", "local_rank", "local_size", "epoch", "job", "nodes")}
    return Place(group=group, node=words["node"], node_index=int(words.get("node_index", 0)), **numbers)


def _base():
    """The directory with one entry per daemon of this user."""
    own, xdg = os.environ.get("RSD_RUNTIME_DIR", ""), os.environ.get("XDG_RUNTIME_DIR", "")
    if own:
        if not os.path.isabs(own):
            raise JoinError(240, f"RSD_RUNTIME_DIR={own}: not an absolute path")
        return own
    if os.geteuid() == 0 and os.path.isdir("/run") and os.stat("/run").st_uid == 0:
        return SYSTEM
    if os.path.isabs(xdg) and os.path.isdir(xdg):
        return os.path.join(xdg, "rsd")
    # That of a login shell, for processes that have not its environment.
    login = f"/run/user/{os.geteuid()}"
    if os.path.isdir(login) and os.stat(login).st_uid == os.geteuid():
        return os.path.join(login, "rsd")
    return f"/tmp/rsd-{os.geteuid()}"


def _entry(path):
    """The directory of the sockets of the daemon with this state directory; any other path as it is."""
    try:
        return os.readlink(os.path.join(path, "run"))
    except OSError:
        return path


def _running(entry):
    """The content of daemon.json of a running daemon, which holds its lock; None if it does not run."""
    try:
        lock = os.open(os.path.join(entry, "rsd.lock"), os.O_RDONLY | os.O_CLOEXEC)
    except PermissionError:
        return _public(entry)
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return None
    except BlockingIOError:
        with open(os.path.join(entry, "daemon.json"), encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError):
        return None
    finally:
        os.close(lock)


def _public(entry):
    """The content of daemon.json of root's running daemon that serves all users; None if there is none. Its lock is root's own."""
    try:
        place = os.stat(entry)
        with open(os.path.join(entry, "daemon.json"), encoding="utf-8") as file:
            about = json.load(file)
        if place.st_uid != 0 or place.st_mode & 0o022 or not about.get("serves_all"):
            return None
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stream:
            stream.connect(os.path.join(entry, "rsd.sock"))
    except (OSError, ValueError):
        return None
    # The state directory is root's own; this directory stands for the daemon.
    return dict(about, state_dir=entry)


def _state_dir(wish):
    """The state directory of the selected daemon: this user's, or one that serves all users."""
    base = _base()
    try:
        return _state_dir_in(base, wish)
    except JoinError as error:
        if error.code != 241 or os.environ.get("RSD_RUNTIME_DIR") or base == SYSTEM:
            raise
        try:
            return _state_dir_in(SYSTEM, wish)
        except JoinError as other:
            raise other if "DVMs are running" in str(other) else error from None


def _state_dir_in(base, wish):
    if wish is not None:
        # A slash marks the path of a state directory; a name is relative to the base directory.
        entry = _entry(wish) if "/" in wish else os.path.join(base, wish)
        try:
            owner = os.stat(entry).st_uid
        except PermissionError:
            raise _denied(entry) from None
        except OSError:
            raise JoinError(241, f"{wish}: no such daemon is running; start one with: rsd start") from None
        about = _running(entry) if owner in (0, os.geteuid()) else None
        if about is None and owner != os.geteuid():
            raise _denied(entry)
        if about is None:
            raise JoinError(241, f"{wish}: no such daemon is running; start one with: rsd start")
        return about.get("state_dir") or os.path.abspath(entry)
    try:
        names = sorted(os.listdir(base))
    except PermissionError:
        raise _denied(base) from None
    except OSError:
        names = []
    found = {}
    for name in names:
        path = os.path.join(base, name)
        about = None if name.startswith(".") or not stat.S_ISDIR(_mode(path)) else _running(path)
        if about is None:
            continue
        # Daemons of one DVM count once; the head takes precedence.
        known = found.get(about.get("dvm"))
        if known is None or about.get("head") and not known[1].get("head"):
            found[about.get("dvm")] = (about.get("state_dir") or path, about)
    if len(found) == 1:
        return next(iter(found.values()))[0]
    if not found:
        raise JoinError(241, f"no daemon is running here (looked in {base}); start one with: rsd start")
    names = ", ".join(path for path, _ in found.values())
    raise JoinError(241, f"{len(found)} DVMs are running here; choose one with dvm= or RSD_DVM: {names}")


def _denied(place):
    """The error for a place that belongs to another user, or lies in another user's directory."""
    while place != os.path.dirname(place):
        try:
            owner = os.stat(place).st_uid
            return JoinError(245, f"{place} belongs to uid {owner}; use a daemon of your own: rsd start")
        except OSError:
            place = os.path.dirname(place)
    return JoinError(245, "the daemon belongs to another user; use a daemon of your own: rsd start")


def _mode(path):
    try:
        return os.stat(path).st_mode
    except OSError:
        return 0

//! One DVM, run by root, for several users: each runs programs as itself, and what another has does not exist. Uids 1 and 2 are `daemon` and
//! `bin` on every Linux.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::unistd::{Uid, User};
use rsd_tests::{Call, Dvm, Mpi, Options, Running, built, copy_program, eventually, pkg_config, plain_with};
use serde_json::Value;

const WITHIN: Duration = Duration::from_secs(20);

/// A DVM for all users, and the files that they need. None: this process is not root.
struct Shared {
    dvm: Dvm,
    bin: PathBuf,
}

impl Shared {
    fn start(nodes: usize, settings: &str) -> Option<Shared> {
        if !Uid::effective().is_root() {
            eprintln!("skipped: only root runs a daemon for several users");
            return None;
        }
        let mut dvm = Dvm::start_with(Options { nodes: 0, slots: 8, args: Vec::new() });
        let config = dvm.file("rsd.toml", settings);
        let args = ["--listen", "127.0.0.1:0", "--config", &config].map(str::to_owned);
        dvm.add(&args);
        for _ in 1..nodes {
            dvm.add(&["--join".to_owned(), dvm.listen()]);
        }
        // The users cannot enter the directories of a build below root's home.
        let bin = dvm.scratch().join("bin");
        fs::create_dir(&bin).expect("the DVM's directory is writable");
        for open in [dvm.scratch(), bin.clone()] {
            fs::set_permissions(open, fs::Permissions::from_mode(0o755)).expect("the directory is root's");
        }
        let shared = Shared { dvm, bin };
        // Before any process runs one: a program that is being written cannot be executed.
        shared.copy(built::rsctl());
        shared.copy(built::rsd());
        Some(shared)
    }

    fn copy(&self, file: impl AsRef<Path>) -> PathBuf {
        let copy = self.bin.join(file.as_ref().file_name().expect("the path names a file"));
        copy_program(file, &copy);
        copy
    }

    /// A directory of this user.
    fn home(&self, uid: u32) -> PathBuf {
        let home = self.dvm.scratch().join(format!("home{uid}"));
        if fs::create_dir(&home).is_ok() {
            chown(&home, Some(uid), Some(uid)).expect("root may change owners");
        }
        home
    }

    /// A program that this user runs.
    fn run(&self, uid: u32, program: impl AsRef<Path>) -> Call {
        let home = self.home(uid);
        let call = self.dvm.call(program.as_ref()).dir(&home).env("HOME", &home).env("XDG_CONFIG_HOME", &home);
        call.env("LD_LIBRARY_PATH", &self.bin).user(uid)
    }

    fn rsctl(&self, uid: u32, words: &str) -> Call {
        self.run(uid, self.bin.join("rsctl")).args(words.split_whitespace())
    }

    fn jobs(&self, uid: u32) -> Vec<u64> {
        let text = self.rsctl(uid, "ps -a --json").ok();
        let listed: Value = serde_json::from_str(&text).expect("rsctl prints JSON");
        listed["jobs"].as_array().into_iter().flatten().filter_map(|job| job["job"].as_u64()).collect()
    }

    /// Starts a job of this user that runs until it is cancelled; returns its number.
    fn sleeper(&self, uid: u32) -> u64 {
        let job = self.rsctl(uid, "submit -n 1 sleep 1000").ok().trim().parse().expect("submit prints a number");
        eventually("the job runs", WITHIN, || self.rsctl(uid, "ps").ok().contains("running").then_some(()));
        job
    }
}

#[test]
fn a_job_runs_as_its_user_on_every_node() {
    let Some(shared) = Shared::start(2, "") else { return };
    // The usual shell of a test has its own limits: what is checked is that they come from the user, and that root's do not.
    let script = "umask; ulimit -Sn; ulimit -Hc; grep -E '^(Uid|Gid|Groups|CapEff|CapInh|CapPrm|CapAmb):' /proc/self/status; \
                  echo MINE=$MINE HOME=$HOME; test -r /etc/shadow && echo reads shadow; ls /proc/$PPID/fd 2>/dev/null | wc -l";
    for uid in [1, 2] {
        let text = shared
            .run(uid, "sh")
            .env("MINE", "yes")
            .args([
                "-c",
                "umask 027; ulimit -Sn 200; ulimit -Hc 0; exec rsctl run -n 2 --map-by node sh -c \"$0\"",
                script,
            ])
            .env("PATH", format!("{}:/usr/bin:/bin", shared.bin.display()))
            .ok();
        let home = shared.home(uid);
        let lines = |wanted: &str| text.lines().filter(|line| *line == wanted).count();
        assert_eq!((lines("0027"), lines("200"), lines("0")), (2, 2, 4), "{text}");
        assert_eq!(lines(&format!("Uid:\t{uid}\t{uid}\t{uid}\t{uid}")), 2, "{text}");
        let user = User::from_uid(Uid::from_raw(uid)).expect("the database can be read").expect("the user exists");
        let gid = user.gid;
        assert_eq!(lines(&format!("Gid:\t{gid}\t{gid}\t{gid}\t{gid}")), 2, "{text}");
        assert!(
            text.lines().filter(|line| line.starts_with("Groups:")).all(|line| line.contains(&gid.to_string())),
            "{text}"
        );
        for caps in ["CapEff", "CapInh", "CapPrm", "CapAmb"] {
            assert_eq!(lines(&format!("{caps}:\t0000000000000000")), 2, "{text}");
        }
        assert_eq!(lines(&format!("MINE=yes HOME={}", home.display())), 2, "{text}");
        assert!(!text.contains("reads shadow"), "{text}");
    }
    // Root's own jobs are root's.
    assert_eq!(shared.dvm.ctl("run -n 2 --map-by node id -u").ok(), "0\n0\n");
    let file = shared.home(1).join("out-of-root");
    shared.run(1, shared.bin.join("rsctl")).args(["run", "-n", "1", "touch"]).args([&file]).ok();
    assert_eq!(std::os::unix::fs::MetadataExt::uid(&fs::metadata(&file).expect("the rank made it")), 1);
}

#[test]
fn a_job_of_another_user_does_not_exist() {
    let Some(shared) = Shared::start(1, "") else { return };
    let job = shared.sleeper(1);
    let through_logs = shared.rsctl(1, "submit -n 1 echo secret").ok().trim().to_owned();
    shared.rsctl(1, &format!("wait {through_logs}")).ok();
    assert!(shared.jobs(2).is_empty(), "a user sees its own jobs only");
    for (words, of) in [
        ("job show {}", job.to_string()),
        ("logs {}", through_logs.clone()),
        ("attach {}", job.to_string()),
        ("wait {}", job.to_string()),
        ("signal {} TERM", job.to_string()),
        ("cancel {}", job.to_string()),
        ("kv ls --job {}", job.to_string()),
        ("kv put key --job {} --value mine", job.to_string()),
        ("kv get key --job {}", job.to_string()),
    ] {
        let said = |number: &str| {
            let ended = shared.rsctl(2, &words.replace("{}", number)).end();
            assert!(!ended.status.success(), "{words}: {ended}");
            (ended.status.code(), ended.err().replace(number, "N"))
        };
        let (theirs, none) = (said(&of), said("99999"));
        assert_eq!(theirs, none, "{words}");
    }
    // The owner and root see it, root with its user.
    assert!(shared.rsctl(1, &format!("logs {through_logs}")).ok().contains("secret"));
    let listed = shared.dvm.ctl("ps -a").ok();
    let user = User::from_uid(Uid::from_raw(1)).expect("the database can be read").expect("the user exists").name;
    assert!(listed.contains("USER") && listed.contains(&user), "{listed}");
    assert_eq!(shared.jobs(1).len(), 2);
    for (words, said) in [
        ("stop", "only root"),
        ("upgrade", "only root"),
        ("token new --user 1", "only root makes tokens for other users"),
    ] {
        let refused = shared.run(2, shared.bin.join("rsd")).args(words.split_whitespace()).fails(245);
        assert!(refused.contains(said), "{words}: {refused}");
    }
    shared.dvm.ctl(&format!("cancel {job}")).ok();
}

#[test]
fn the_files_of_the_daemon_are_roots_and_its_sockets_are_open() {
    let Some(shared) = Shared::start(1, "") else { return };
    shared.rsctl(1, "run -n 1 echo secret").ok();
    let job = shared.sleeper(1);
    let mode = |path: PathBuf| {
        let meta = fs::metadata(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        (std::os::unix::fs::MetadataExt::uid(&meta), meta.permissions().mode() & 0o777)
    };
    let state_dir = PathBuf::from(shared.dvm.record(0)["state_dir"].as_str().expect("the daemon records it"));
    assert_eq!(mode(state_dir.clone()), (0, 0o700));
    for name in ["authority", "identity.json", &format!("steps/{job}"), &format!("jobs/{job}.log")] {
        assert_eq!(mode(state_dir.join(name)).1 & 0o077, 0, "{name}");
    }
    let entry = fs::read_link(state_dir.join("run")).expect("a link leads to the sockets");
    assert_eq!(mode(entry.clone()), (0, 0o755));
    for (name, expected) in [("rsd.sock", 0o666), ("join.sock", 0o666), ("daemon.json", 0o644), ("rsd.lock", 0o600)] {
        assert_eq!(mode(entry.join(name)), (0, expected), "{name}");
    }
    shared.rsctl(1, &format!("cancel {job}")).ok();
}

/// Members of a group by this user.
fn members(shared: &Shared, uid: u32, group: &str, program: &Path) -> Vec<Running> {
    let member = || {
        let call = shared.run(uid, "setsid").args(["--wait"]).args([shared.bin.join("rsctl")]);
        call.args(["group", "exec", group, "--size", "2", "--timeout", "20s", "--"]).args([program]).start()
    };
    vec![member(), member()]
}

#[test]
fn groups_and_names_are_each_users_own() {
    let Some(shared) = Shared::start(1, "") else { return };
    shared.copy(Mpi::Ours.library_folder().join("libmpi_abi.so.1"));
    let hello = shared.copy(Mpi::Ours.program("hello.c"));
    // One member of each user waits; neither completes the other's group.
    let alone = |uid| {
        let call = shared.rsctl(uid, "group exec actors --size 2 --timeout 3s -- true");
        call.start()
    };
    let (ann, bob) = (alone(1), alone(2));
    for waiting in [ann, bob] {
        let text = waiting.end().fails(124);
        assert!(text.contains("1 of 2 members"), "{text}");
    }
    let both: Vec<Running> = [1, 2].into_iter().flat_map(|uid| members(&shared, uid, "actors", &hello)).collect();
    let mut lines: Vec<String> =
        both.into_iter().flat_map(|member| member.end().ok().lines().map(str::to_owned).collect::<Vec<_>>()).collect();
    lines.sort_unstable();
    assert_eq!(lines.len(), 4, "{lines:?}");
    assert_eq!(lines[0], lines[1], "rank 0 of both groups: {lines:?}");
    let said = shared.rsctl(2, "group show actors").end();
    assert!(said.status.success(), "its own group of the same name: {said}");
    // A world of launched processes, each user's own.
    let text = shared.run(1, shared.bin.join("rsctl")).args(["run", "-n", "2"]).args([&hello]).ok();
    assert_eq!(text.lines().count(), 2, "{text}");
}

#[test]
fn a_process_of_another_user_is_no_step_and_no_rank() {
    let Some(shared) = Shared::start(1, "") else { return };
    let job = shared.sleeper(1);
    let step = eventually("the step runs", WITHIN, || {
        let ours = rsd_tests::processes::mentioning(&shared.dvm.runtime_dir(0).display().to_string());
        ours.into_iter().find(|(_, line)| line.contains(&format!("--order {job} "))).map(|(pid, _)| pid)
    });
    let status = fs::read_to_string(format!("/proc/{step}/status")).expect("the step runs");
    assert!(status.contains("\nUid:\t1\t1\t1\t1\n"), "the step is its user's: {status}");
    let environ = fs::read(format!("/proc/{step}/environ")).expect("root may read it");
    assert!(!String::from_utf8_lossy(&environ).contains("RSD_RUNTIME_DIR"), "the daemon's environment is root's");
    // A user kills its own step at most; the daemon tells why the job ended.
    let refused = shared.run(2, "kill").args([step.to_string()]).end();
    assert!(!refused.status.success(), "another user may not: {refused}");
    shared.run(1, "kill").args(["-KILL", &step.to_string()]).ok();
    eventually("the job ends", WITHIN, || {
        let ended = shared.rsctl(1, &format!("job show {job}")).ok();
        ended.contains("failed").then_some(())
    });
    assert_eq!(shared.rsctl(2, "run -n 1 echo fine").ok(), "fine\n");
}

#[test]
fn a_users_step_can_only_append_to_the_daemons_log() {
    let Some(shared) = Shared::start(1, "") else { return };
    // In the background, a daemon's standard error is its log, which the daemon can also read.
    let rsd = |words: &str| shared.dvm.call(built::rsd()).args(words.split_whitespace()).ok();
    rsd("start --name logged --slots 1");
    let job = shared.rsctl(1, "submit --dvm logged -n 1 sleep 1000").ok().trim().to_owned();
    let step = eventually("the step runs as its user", WITHIN, || {
        let ours = rsd_tests::processes::mentioning(&shared.dvm.runtime_base().join("logged").display().to_string());
        let (pid, _) = ours.into_iter().find(|(_, line)| line.contains(&format!("--order {job} ")))?;
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let is_detached = fs::read_link(format!("/proc/{pid}/fd/0")).is_ok_and(|file| file == Path::new("/dev/null"));
        (status.contains("\nUid:\t1\t1\t1\t1\n") && is_detached).then_some(pid)
    });
    let log = fs::read_link(format!("/proc/{step}/fd/2")).expect("root may look");
    assert!(log.ends_with("rsd.log"), "{log:?}");
    let about = fs::read_to_string(format!("/proc/{step}/fdinfo/2")).expect("root may look");
    let flags = about.lines().find_map(|line| line.strip_prefix("flags:")).expect("the kernel reports them").trim();
    let flags = i32::from_str_radix(flags, 8).expect("they are octal");
    // O_ACCMODE, O_WRONLY and O_APPEND.
    assert_eq!((flags & 0o3, flags & 0o2000), (0o1, 0o2000), "{about}");
    shared.rsctl(1, &format!("cancel --dvm logged {job}")).ok();
    rsd("stop --dvm logged --force");
}

#[test]
fn quotas_are_refused_with_their_setting() {
    let Some(shared) = Shared::start(1, "[users]\njobs = 2\nfollowers = 1\nconnections = 8\nlog = \"64KiB\"\n") else {
        return;
    };
    let (first, second) = (shared.sleeper(1), shared.sleeper(1));
    let refused = shared.rsctl(1, "submit -n 1 true").fails(243);
    assert!(refused.contains("users.jobs"), "{refused}");
    assert_eq!(shared.rsctl(2, "run -n 1 echo mine").ok(), "mine\n");
    let follower = shared.rsctl(1, &format!("attach {first}")).start();
    eventually("the follower is counted", WITHIN, || {
        let ended = shared.rsctl(1, &format!("wait {second}")).deadline(Duration::from_secs(5)).start();
        std::thread::sleep(Duration::from_millis(300));
        (!ended.runs() && ended.stderr().contains("users.followers")).then_some(())
    });
    drop(follower);
    for job in [first, second] {
        shared.rsctl(1, &format!("cancel {job} --grace 0")).ok();
    }
    let text = shared.rsctl(2, "run -n 1 head -c 200000 /dev/zero").end();
    assert!(text.err().contains("users.log"), "{text}");

    // Idle connections of one user use up its own share.
    let entry = shared.dvm.state_dir(0);
    let script = "import socket, sys\nidle = []\nfor _ in range(200):\n    s = socket.socket(socket.AF_UNIX)\n    \
                  s.connect(sys.argv[1]); idle.append(s)\nprint('open', flush=True); sys.stdin.read()";
    let socket = fs::read_link(entry.join("run")).unwrap_or(entry).join("rsd.sock");
    let flood = shared.run(1, "python3").args(["-c", script]).args([socket]).stdin_open().start();
    flood.until_stdout(|out| out.contains("open").then_some(()));
    let began = std::time::Instant::now();
    assert_eq!(shared.rsctl(2, "run -n 1 echo still").ok(), "still\n");
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert!(!shared.rsctl(1, "ps").end().status.success(), "its own share is used up");
}

#[test]
fn one_user_does_not_take_all_places_for_groups() {
    let Some(shared) = Shared::start(1, "[users]\nconnections = 8\n") else { return };
    let script = "import socket, sys\nidle = []\nfor _ in range(9):\n    s = socket.socket(socket.AF_UNIX)\n    \
                  s.connect(sys.argv[1]); idle.append(s)\ns.sendall(b'?\\n')\nprint(s.recv(1000).decode(), flush=True); sys.stdin.read()";
    let socket = shared.dvm.runtime_dir(0).join("join.sock");
    let idle = shared.run(1, "python3").args(["-c", script]).args([socket]).stdin_open().start();
    idle.until_stdout(|out| out.contains("users.connections").then_some(()));
    let alone = shared.rsctl(2, "group exec actors --size 2 --timeout 2s -- true").fails(124);
    assert!(alone.contains("1 of 2 members"), "another user still gets a place: {alone}");
}

#[test]
fn a_login_over_tcp_acts_as_the_tokens_user() {
    let Some(shared) = Shared::start(1, "") else { return };
    let listen = shared.dvm.listen();
    let token = |words: &[&str], uid: Option<u32>| {
        let call = match uid {
            None => shared.dvm.call(built::rsd()),
            Some(uid) => shared.run(uid, shared.bin.join("rsd")),
        };
        call.args(["token", "new", "--quiet"]).args(words).ok().trim().to_owned()
    };
    // By root for a user, and by a user for itself. The user's process elsewhere may have any uid.
    for (uid, token) in [(1, token(&["--user", "1"], None)), (2, token(&[], Some(2)))] {
        let away = shared.home(100 + uid);
        let there = || {
            let call = shared.run(100 + uid, shared.bin.join("rsctl")).env("RSD_RUNTIME_DIR", away.join("none"));
            call.args(["--dvm", &listen])
        };
        shared.run(100 + uid, shared.bin.join("rsctl")).args(["login", &listen, "--token", &token]).ok();
        assert_eq!(there().args(["run", "-n", "1", "id", "-u"]).ok(), format!("{uid}\n"));
        let jobs: Value = serde_json::from_str(&there().args(["ps", "-a", "--json"]).ok()).expect("rsctl prints JSON");
        assert_eq!(jobs["jobs"].as_array().map(Vec::len), Some(1), "{jobs}");
    }
    // A user's token admits no daemon.
    let login = token(&[], Some(2));
    let joining = |token: &str, uid: Option<u32>| {
        let home = shared.home(200);
        let (rsd, args) = (shared.bin.join("rsd"), ["start", "--foreground", "--name", "far", "--join", &listen]);
        let call = match uid {
            Some(uid) => shared.run(uid, rsd),
            None => shared.dvm.call(rsd),
        };
        let (run, state) = (home.join(format!("run{uid:?}")), home.join(format!("state{uid:?}")));
        let call = call.env("RSD_RUNTIME_DIR", run).env("RSD_STATE_DIR", state);
        call.args(args).args(["--token", token]).fails(245)
    };
    let refused = joining(&login, None);
    assert!(refused.contains("the token is for rsctl login and admits no daemon"), "{refused}");
    // Nor does root's token admit a user's daemon.
    let refused = joining(&token(&[], None), Some(200));
    assert!(refused.contains("only root runs its daemons"), "{refused}");
}

#[test]
fn root_joins_a_users_head_only_on_purpose() {
    let Some(shared) = Shared::start(1, "") else { return };
    let (home, rsd) = (shared.home(1), shared.bin.join("rsd"));
    let start = |uid| {
        let call =
            shared.run(uid, &rsd).env("RSD_RUNTIME_DIR", home.join("run")).env("RSD_STATE_DIR", home.join("state"));
        call.args(["start", "--foreground", "--slots", "1"])
    };
    let head = start(1).args(["--name", "theirs", "--listen", "127.0.0.1:0"]).start();
    let address = head.until_stdout(|out| {
        let (_, rest) = out.split_once("listening on ")?;
        Some(rest.split_once(',')?.0.to_owned())
    });
    let run = || shared.run(1, &rsd).env("RSD_RUNTIME_DIR", home.join("run"));
    let token = run().args(["token", "new", "--quiet"]).ok().trim().to_owned();
    let join = |name: &str| {
        let elsewhere = shared.dvm.scratch().join(name);
        let call = shared.dvm.call(&rsd).env("RSD_RUNTIME_DIR", elsewhere.join("run")).env("RSD_STATE_DIR", &elsewhere);
        call.args(["start", "--foreground", "--name", name, "--slots", "1", "--join", &address, "--token", &token])
    };
    let refused = join("far").fails(245);
    assert!(refused.contains("the head belongs to uid 1") && refused.contains("--trust-user 1"), "{refused}");
    let node = join("near").args(["--trust-user", "1"]).start();
    node.until_stdout(|out| out.contains("ready").then_some(()));
}

#[test]
fn sockets_that_say_nothing_do_not_stall_the_head() {
    let Some(shared) = Shared::start(1, "") else { return };
    let listen = shared.dvm.listen();
    let (host, port) = listen.rsplit_once(':').expect("HOST:PORT");
    let script = "import socket, sys, resource\nhard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n\
                  resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))\nidle = []\nprint('begun', flush=True)\n\
                  for _ in range(min(hard - 100, 20000)):\n    s = socket.socket(); s.setblocking(False)\n    \
                  s.connect_ex((sys.argv[1], int(sys.argv[2]))); idle.append(s)\nprint('open', flush=True); sys.stdin.read()";
    let flood = shared.run(2, "python3").args(["-c", script, host, port]).stdin_open().start();
    flood.until_stdout(|out| out.contains("begun").then_some(()));
    for _ in 0..10 {
        let began = std::time::Instant::now();
        shared.rsctl(1, "ps").ok();
        assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    }
    flood.until_stdout(|out| out.contains("open").then_some(()));
    shared.rsctl(1, "run -n 1 true").ok();
}

#[test]
fn a_pmix_server_serves_the_processes_of_its_jobs_user_only() {
    let Some(shared) = Shared::start(1, "") else { return };
    let flags = pkg_config("pmix");
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let program = shared.copy(plain_with("pmix.c", &flags));
    for uid in [1, 2] {
        let printed = shared.rsctl(uid, "run -n 2").args([&program]).ok();
        assert_eq!(crate::sorted(&printed), ["rank 0 of 2 right", "rank 1 of 2 right"], "uid {uid}");
    }
    // A rank of one user gives its environment away.
    let rank = shared.rsctl(1, "run -n 1 sh -c").args(["env; echo all; exec sleep 60"]).start();
    let told = rank.until_stdout(|text| text.contains("\nall\n").then(|| text.to_owned()));
    let variables: Vec<(&str, &str)> =
        told.lines().filter(|line| line.starts_with("PMIX_")).filter_map(|line| line.split_once('=')).collect();
    let with = |uid| variables.iter().fold(shared.run(uid, &program), |call, (name, value)| call.env(name, value));
    let refused = with(2).end();
    assert!(refused.out().starts_with("rank") && refused.out().contains("init:"), "{}", refused.out());
    assert_eq!(with(1).ok(), "rank 0 of 1 right\n");
}

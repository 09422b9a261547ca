//! Turns a rank's spawn request into a job: its programs, the spawner's environment and directory, and the info keys (MPI 5.0,
//! 11.8.4, and Hydra's). The head places the job.
//!
//! | key | meaning |
//! |---|---|
//! | `host`, `hosts` | as `rsctl run --host` |
//! | `hostfile` | as `--hostfile`, read on the spawner's node |
//! | `wdir` | where the program starts; relative to the spawner's |
//! | `path` | directories, separated by colons, that are searched for the program before PATH |
//! | `env` | `NAME=VALUE`, over the spawner's environment; may be given several times |
//! | `soft` | smaller numbers of ranks that are acceptable: `first:last:stride,…` |
//! | `file` | a file of further keys, as lines of `key = value` |
//! | `rsd_apart` | `true`: if the new job fails, the spawner's job continues |
//!
//! Other keys belong to other implementations and are ignored.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use rsd_config::{hostfile, hostlist, triplets};
use rsd_core::plan;
use rsd_core::step::SpawnWish;
use rsd_proto::pmi::environment::is_launcher_variable;
use rsd_proto::pmi::v1::{Spawn, SpawnSegment};
use rsd_proto::v1::{App, EnvVar, Host, Inherited, JobSpec, Soft, StdinTarget, Triplet, stdin_target::Target};

/// A file of keys may include another, up to this depth.
const FILES_DEEP: usize = 4;

/// The process that requests the spawn.
#[derive(Debug)]
pub(super) struct Spawner {
    /// Its environment.
    pub(super) env: Vec<EnvVar>,
    /// Its working directory.
    pub(super) wdir: PathBuf,
    /// As in the spawner's job.
    pub(super) oversubscribe: bool,
    pub(super) output_dir: Bytes,
    pub(super) output_overwrite: bool,
    /// The umask, nice value and limits that its processes inherit.
    pub(super) inherited: Option<Inherited>,
    /// Whether ranks see only their own GPUs.
    pub(super) gpus_visible: bool,
    /// The size of the universe that the user has set.
    pub(super) universe_size: Option<u32>,
}

/// Returns the requested job, or a sentence that says why the request is invalid.
pub(super) fn wish(
    spawn: Spawn,
    spawner: Spawner,
    random: Bytes,
    read: impl Fn(&Path) -> io::Result<String>,
) -> Result<SpawnWish, String> {
    let mut apart = false;
    let mut soft = Vec::new();
    let mut apps = Vec::new();
    for segment in spawn.segments {
        let keys = Keys::of(&segment, &spawner.wdir, &read)?;
        apart |= keys.apart;
        soft.push(Soft { triplets: keys.soft });
        let argv = [segment.execname].into_iter().chain(segment.args).map(Bytes::from).collect();
        let wdir = if keys.wdir.as_os_str().is_empty() { spawner.wdir.clone() } else { spawner.wdir.join(&keys.wdir) };
        apps.push(App {
            argv,
            n: Some(segment.nprocs),
            env: keys.env,
            wdir: Bytes::copy_from_slice(wdir.as_os_str().as_bytes()),
            hosts: keys.hosts,
            path: keys.path.into(),
            soft: None,
        });
    }
    let hidden = |var: &EnvVar| {
        is_launcher_variable(&var.name) || spawner.gpus_visible && var.name == b"CUDA_VISIBLE_DEVICES"[..]
    };
    let spec = JobSpec {
        apps,
        env: spawner.env.into_iter().filter(|var| !hidden(var)).collect(),
        oversubscribe: spawner.oversubscribe,
        output_dir: spawner.output_dir,
        output_overwrite: spawner.output_overwrite,
        inherited: spawner.inherited,
        universe_size: spawner.universe_size,
        stdin: Some(StdinTarget { target: Some(Target::None(true)) }),
        ..JobSpec::default()
    };
    let preput = spawn.preput.into_iter().map(|(key, value)| (key.into(), value.into())).collect();
    Ok(SpawnWish { spec, soft, preput, apart, random })
}

/// The info keys of a program.
#[derive(Debug, Default)]
struct Keys {
    hosts: Vec<Host>,
    wdir: PathBuf,
    path: Vec<u8>,
    env: Vec<EnvVar>,
    soft: Vec<Triplet>,
    apart: bool,
}

impl Keys {
    fn of(segment: &SpawnSegment, wdir: &Path, read: &impl Fn(&Path) -> io::Result<String>) -> Result<Keys, String> {
        let mut keys = Keys::default();
        for (key, value) in &segment.info {
            keys.take(key, value, wdir, read, FILES_DEEP)?;
        }
        Ok(keys)
    }

    fn take(
        &mut self,
        key: &[u8],
        value: &[u8],
        wdir: &Path,
        read: &impl Fn(&Path) -> io::Result<String>,
        deep: usize,
    ) -> Result<(), String> {
        let text =
            || std::str::from_utf8(value).map_err(|_| format!("info key {}: not valid UTF-8", key.escape_ascii()));
        let open = |file: &str| {
            read(&wdir.join(file)).map_err(|error| format!("cannot read {file}, named by an info key: {error}"))
        };
        match key {
            b"host" | b"hosts" => {
                let hosts = hostlist::parse(text()?).map_err(|error| error.to_string())?;
                self.hosts.extend(hosts.into_iter().map(plan::host));
            }
            b"hostfile" => {
                let hosts = hostfile::parse(&open(text()?)?, text()?).map_err(|error| error.to_string())?;
                self.hosts.extend(hosts.into_iter().map(plan::host));
            }
            b"wdir" | b"wd" => self.wdir = PathBuf::from(OsStr::from_bytes(value)),
            b"path" => self.path = value.to_vec(),
            b"env" => match value.iter().position(|byte| *byte == b'=') {
                Some(at) if at > 0 => {
                    let (name, value) = (Bytes::copy_from_slice(&value[..at]), &value[at + 1..]);
                    self.env.retain(|var| var.name != name);
                    self.env.push(EnvVar { name, value: Bytes::copy_from_slice(value) });
                }
                Some(_) | None => {
                    return Err(format!("info key env: {}: write NAME=VALUE", String::from_utf8_lossy(value)));
                }
            },
            b"soft" => self.soft = soft(text()?)?,
            b"file" if deep == 0 => return Err("info key file: the files include each other".into()),
            b"file" => {
                for line in
                    open(text()?)?.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'))
                {
                    let (key, value) = line
                        .split_once('=')
                        .ok_or_else(|| format!("invalid line {line:?} in the info file: write key = value"))?;
                    self.take(key.trim().as_bytes(), value.trim().as_bytes(), wdir, read, deep - 1)?;
                }
            }
            b"rsd_apart" => self.apart = value == b"true",
            _ => {}
        }
        Ok(())
    }
}

/// Parses triplets in MPI's form: `4`, `2:10`, `2:10:2`.
fn soft(text: &str) -> Result<Vec<Triplet>, String> {
    let triplets = triplets::parse(text).map_err(|error| format!("info key soft: {error}"))?;
    let triplet = |triplets::Triplet { first, last, stride }| Triplet { first, last, stride };
    Ok(triplets.into_iter().map(triplet).collect())
}

/// Returns the environment of a process and its working directory, as the kernel reports them.
pub(super) fn look_at(pid: u32) -> io::Result<(Vec<EnvVar>, PathBuf)> {
    let bytes = std::fs::read(format!("/proc/{pid}/environ"))?;
    let var = |text: &[u8]| {
        let at = text.iter().position(|byte| *byte == b'=').filter(|at| *at > 0)?;
        Some(EnvVar { name: Bytes::copy_from_slice(&text[..at]), value: Bytes::copy_from_slice(&text[at + 1..]) })
    };
    let env = bytes.split(|byte| *byte == 0).filter_map(var).collect();
    Ok((env, std::fs::read_link(format!("/proc/{pid}/cwd"))?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spawner() -> Spawner {
        let var = |name: &'static str, value: &'static str| EnvVar { name: name.into(), value: value.into() };
        Spawner {
            env: vec![var("PATH", "/bin"), var("PMI_FD", "3"), var("CUDA_VISIBLE_DEVICES", "0"), var("A", "1")],
            wdir: "/work".into(),
            oversubscribe: true,
            output_dir: "/out".into(),
            output_overwrite: true,
            inherited: Some(Inherited { umask: Some(0o27), ..Inherited::default() }),
            gpus_visible: true,
            universe_size: Some(9),
        }
    }

    fn wished(info: &[(&str, &str)], file: &str) -> Result<SpawnWish, String> {
        let info = info.iter().map(|(key, value)| (key.as_bytes().to_vec(), value.as_bytes().to_vec())).collect();
        let segment = SpawnSegment { nprocs: 3, execname: "./child".into(), args: vec!["x y".into()], info };
        let spawn = Spawn { segments: vec![segment], preput: [(b"k".to_vec(), b"v".to_vec())].into() };
        wish(spawn, spawner(), Bytes::new(), |path| match path.to_str() {
            Some("/work/keys") => Ok(file.to_owned()),
            _ => Err(io::ErrorKind::NotFound.into()),
        })
    }

    #[test]
    fn a_spawned_job_has_its_spawners_environment_and_directory() {
        let wish = wished(&[], "").unwrap();
        let names: Vec<_> = wish.spec.env.iter().map(|var| String::from_utf8_lossy(&var.name)).collect();
        assert_eq!(names, ["PATH", "A"], "neither the spawner's rank variables nor its GPUs");
        let app = &wish.spec.apps[0];
        assert_eq!(
            (app.n, &app.wdir[..], &app.argv[..]),
            (Some(3), &b"/work"[..], &["./child".into(), "x y".into()][..])
        );
        assert!(wish.spec.oversubscribe && !wish.spec.attached && !wish.apart && wish.spec.output_overwrite);
        assert_eq!(wish.spec.universe_size, Some(9));
        assert_eq!(wish.spec.inherited.and_then(|inherited| inherited.umask), Some(0o27));
        assert_eq!(wish.preput, [("k".into(), "v".into())]);
    }

    #[test]
    fn info_keys_set_hosts_directory_and_environment() {
        let keys =
            [("host", "a,b:2"), ("wdir", "sub"), ("path", "/opt/bin"), ("env", "A=2"), ("env", "B=x=y"), ("arch", "z")];
        let app = wished(&keys, "").unwrap().spec.apps.remove(0);
        assert_eq!(
            app.hosts.iter().map(|host| (&host.name[..], host.slots)).collect::<Vec<_>>(),
            [("a", None), ("b", Some(2))]
        );
        assert_eq!((&app.wdir[..], &app.path[..]), (&b"/work/sub"[..], &b"/opt/bin"[..]));
        assert_eq!(app.env.iter().map(|var| &var.value[..]).collect::<Vec<_>>(), [b"2".as_slice(), b"x=y"]);
    }

    #[test]
    fn a_file_of_keys_is_replaced_by_its_keys() {
        let wish = wished(&[("file", "keys")], "# comment\n\nwdir = /tmp\nsoft = 1:8:2, 4\nrsd_apart=true\n").unwrap();
        assert_eq!(&wish.spec.apps[0].wdir[..], b"/tmp");
        let triplets: Vec<_> = wish.soft[0].triplets.iter().map(|it| (it.first, it.last, it.stride)).collect();
        assert_eq!(triplets, [(1, 8, 2), (4, 4, 1)]);
        assert!(wish.apart);
    }

    #[test]
    fn invalid_info_keys_are_refused_with_the_accepted_form() {
        for (keys, file, said) in [
            (&[("env", "A")][..], "", "info key env: A: write NAME=VALUE"),
            (&[("soft", "1:x")], "", "info key soft: invalid value \"1:x\""),
            (&[("soft", "1:2:0")], "", "info key soft"),
            (&[("hostfile", "none")], "", "cannot read none"),
            (&[("file", "keys")], "file = keys", "include each other"),
            (&[("file", "keys")], "wdir", "write key = value"),
            (&[("host", "a:b:c")], "", "--host"),
        ] {
            let why = wished(keys, file).unwrap_err();
            assert!(why.contains(said), "{why}");
        }
    }
}

//! `--push`: copies rsd and rsctl to a host.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ring::digest::{SHA256, digest};
use rsd_proto::VERSION;
use rsd_proto::transport::exit;

use super::daemon::{Found, SUM};
use super::place::{Place, Why, quoted_path};
use crate::exit::Failure;

/// The programs that are copied.
const PROGRAMS: [&str; 2] = ["rsd", "rsctl"];

/// The programs of this machine.
#[derive(Debug)]
pub(crate) struct Programs {
    files: [Program; 2],
}

#[derive(Debug)]
struct Program {
    bytes: Vec<u8>,
    sum: String,
}

impl Programs {
    /// Reads the rsd that this rsctl starts, and this rsctl.
    pub(crate) fn read(rsd: &Path) -> Result<Programs, Failure> {
        let rsd = match rsd.is_absolute() {
            true => rsd.to_owned(),
            false => {
                in_path(rsd).ok_or_else(|| Failure::new(exit::SYSTEM, "--push: no rsd beside rsctl or in PATH"))?
            }
        };
        let read = |path: PathBuf| -> Result<Program, Failure> {
            let failed = |error| Failure::new(exit::SYSTEM, format!("--push: read {}: {error}", path.display()));
            let bytes = std::fs::read(&path).map_err(failed)?;
            let sum = digest(&SHA256, &bytes).as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
            Ok(Program { bytes, sum })
        };
        Ok(Programs { files: [read(rsd)?, read(PathBuf::from("/proc/self/exe"))?] })
    }

    /// Copies the programs that are missing or differ, unless the host's are newer. Returns whether any was copied.
    pub(crate) async fn push(
        &self,
        place: &Place,
        folder: &str,
        found: &Found,
        deadline: Duration,
    ) -> Result<bool, Why> {
        check_machine(&found.machine)?;
        if let Some(Ok(version)) = &found.version
            && is_newer(version, VERSION)
        {
            return Ok(false);
        }
        let mut copied = false;
        for (at, name) in PROGRAMS.iter().enumerate() {
            if found.sums[at] != self.files[at].sum {
                copy(place, folder, name, &self.files[at], deadline).await?;
                copied = true;
            }
        }
        Ok(copied)
    }
}

/// Copies a program: into a new file, whose sum is checked, and which then replaces the old one. Where several hosts share the directory,
/// another host may have copied it meanwhile, and already run it: then it stays.
async fn copy(place: &Place, folder: &str, name: &str, program: &Program, deadline: Duration) -> Result<(), Why> {
    let Program { bytes, sum } = program;
    let size = bytes.len();
    let script = format!(
        "umask 022; d={}; mkdir -p \"$d\" || exit 1; t=$(mktemp \"$d/.rsd.XXXXXX\") || exit 1; trap 'rm -f \"$t\"' EXIT; \
         cat >\"$t\" || exit 1; sum() {{ {SUM}; }}; \
         case $(sum <\"$t\") in {sum}*) ;; *) echo \"{name} arrived incomplete: $(wc -c <\"$t\") of {size} bytes, or another sum\" >&2; exit 1;; esac; \
         if [ -x \"$d/{name}\" ]; then case $(sum <\"$d/{name}\") in {sum}*) exit 0;; esac; fi; \
         chmod 755 \"$t\" && mv -f \"$t\" \"$d/{name}\"",
        quoted_path(folder)
    );
    let doing = format!("copying {name}");
    place.run(&script, &[bytes], deadline, &doing).await?.ok(&format!("{doing} failed")).map(drop)
}

/// Refuses a host on which this machine's programs do not run.
fn check_machine(machine: &str) -> Result<(), Why> {
    let own = format!("Linux {}", std::env::consts::ARCH);
    // Other words for the same.
    let theirs = machine.replace("arm64", "aarch64").replace("amd64", "x86_64");
    match theirs == own {
        true => Ok(()),
        false => Err(Why::new(format!(
            "--push: the host is {machine} and this machine is {own}, so these programs do not run there: install rsd on the host"
        ))),
    }
}

/// Whether version `a` is newer than `b`, number by number.
fn is_newer(a: &str, b: &str) -> bool {
    let numbers =
        |text: &str| -> Vec<u64> { text.split(['.', '-', '+', ' ']).map_while(|word| word.parse().ok()).collect() };
    numbers(a) > numbers(b)
}

fn in_path(program: &Path) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newer_versions_are_recognised() {
        for (a, b) in [("0.2.0", "0.1.9"), ("0.10.0", "0.9.0"), ("1.0.0", "0.99"), ("0.1.1", "0.1.0")] {
            assert!(is_newer(a, b) && !is_newer(b, a), "{a} {b}");
        }
        assert!(!is_newer("0.1.0", "0.1.0") && !is_newer("nonsense", "0.1.0"));
    }

    #[tokio::test]
    async fn a_program_that_another_host_has_copied_meanwhile_stays() {
        use std::os::unix::fs::{MetadataExt, PermissionsExt};

        let folder = std::env::temp_dir().join(format!("rsd-push-{}", std::process::id()));
        let (shown, file) = (folder.display().to_string(), folder.join("rsd"));
        let program = |bytes: &[u8]| {
            let sum = digest(&SHA256, bytes).as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
            Program { bytes: bytes.to_owned(), sum }
        };
        let inode = async |bytes: &[u8]| {
            copy(&Place::Here, &shown, "rsd", &program(bytes), Duration::from_secs(20)).await.unwrap();
            assert_eq!(std::fs::read(&file).unwrap(), bytes);
            let meta = std::fs::metadata(&file).unwrap();
            assert_eq!(meta.permissions().mode() & 0o777, 0o755);
            meta.ino()
        };
        let first = inode(b"one").await;
        assert_eq!(inode(b"one").await, first);
        inode(b"two").await;
        let names: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|file| file.unwrap().file_name()).collect();
        assert_eq!(names, ["rsd"], "no scratch file is left");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn programs_are_not_copied_to_another_kind_of_machine() {
        assert_eq!(check_machine(&format!("Linux {}", std::env::consts::ARCH)), Ok(()));
        let why = check_machine("Darwin arm64").unwrap_err();
        assert!(why.text.contains("the host is Darwin arm64"), "{why:?}");
    }
}

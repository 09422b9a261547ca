//! Refuses a job whose programs use different MPI libraries, before any of its ranks starts.
//!
//! Such libraries would wait for each other until a timeout. The step process finds out which MPI library each program of the job
//! would load on its node, also the programs whose ranks run elsewhere. So with a common file system every step comes to the same
//! result, without a message. A job of one program skips this. Libraries that cannot be determined are not compared here; members
//! of groups are compared when they use PMI (`kin`).

use rsd_proto::v1::{App, LaunchBody};

use super::{Effect, Step};
use crate::{Now, sentences};

/// The MPI library that a program would load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Linked {
    /// Whether it is rsd's.
    pub ours: bool,
    /// Its path.
    pub file: String,
}

impl Step {
    /// Returns whether the job has several programs, which could load different libraries.
    pub(super) fn has_several_programs(&self) -> bool {
        !self.has_members() && self.launch_spec().apps.windows(2).any(|pair| !load_the_same(&pair[0], &pair[1]))
    }

    /// Handles the libraries of the job's programs: starts the ranks, or refuses to.
    pub(super) fn on_linked(&mut self, now: Now, linked: &[Option<Linked>], out: &mut Vec<Effect>) {
        match clash(&self.launch, linked) {
            Some(why) => self.fail_before(now, &why, out),
            None => self.meet_and_begin(now, out),
        }
    }
}

/// Returns whether two programs of a job are the same file and load the same libraries.
fn load_the_same(a: &App, b: &App) -> bool {
    a.argv.first() == b.argv.first() && a.path == b.path && a.wdir == b.wdir && a.env == b.env
}

/// Compares all programs with the first whose library is known.
fn clash(launch: &LaunchBody, linked: &[Option<Linked>]) -> Option<String> {
    let mut known = linked.iter().enumerate().filter_map(|(app, linked)| Some((app, linked.as_ref()?)));
    let (first, of_first) = known.next()?;
    let (other, of_other) = known.find(|(_, linked)| linked.ours != of_first.ours)?;
    let name = |app: usize| {
        let argv = launch.spec.as_ref().and_then(|spec| spec.apps.get(app)).and_then(|app| app.argv.first());
        argv.map(|name| String::from_utf8_lossy(name).into_owned()).unwrap_or_default()
    };
    let (ours, theirs) =
        if of_first.ours { ((first, of_first), (other, of_other)) } else { ((other, of_other), (first, of_first)) };
    Some(sentences::programs_differ((&name(ours.0), &ours.1.file), (&name(theirs.0), &theirs.1.file)))
}

#[cfg(test)]
mod tests {
    use rsd_proto::v1::JobSpec;

    use super::*;

    fn found(ours: bool) -> Option<Linked> {
        Some(Linked { ours, file: if ours { "/lib/libmpi_abi.so.1" } else { "/lib/libmpich.so.12" }.to_owned() })
    }

    #[test]
    fn only_known_libraries_that_differ_are_refused() {
        let app = |name: &'static str| App { argv: vec![name.into()], ..App::default() };
        let spec = JobSpec { apps: ["./a", "./b", "./c"].map(app).into(), ..JobSpec::default() };
        let launch = LaunchBody { spec: Some(spec), ..LaunchBody::default() };
        for same in [
            [None, None, None],
            [found(true), None, found(true)],
            [None, found(false), found(false)],
            [found(true), None, None],
        ] {
            assert_eq!(clash(&launch, &same), None, "{same:?}");
        }
        let said = "program ./c uses rsd's MPI library (/lib/libmpi_abi.so.1), but program ./b uses another one \
                    (/lib/libmpich.so.12): all programs of a job must use the same MPI library; build them with the same mpicc";
        assert_eq!(clash(&launch, &[None, found(false), found(true)]).as_deref(), Some(said));
        let said = clash(&launch, &[found(true), found(true), found(false)]);
        assert!(
            said.is_some_and(|said| said.starts_with("program ./a uses rsd's") && said.contains("program ./c uses"))
        );
    }

    #[test]
    fn programs_with_other_arguments_load_the_same_libraries() {
        let one = App { argv: vec!["./a".into(), "1".into()], ..App::default() };
        assert!(load_the_same(&one, &App { argv: vec!["./a".into(), "2".into()], ..App::default() }));
        assert!(!load_the_same(&one, &App { argv: vec!["./b".into(), "1".into()], ..App::default() }));
        assert!(!load_the_same(&one, &App { wdir: "/tmp".into(), ..one.clone() }));
    }
}

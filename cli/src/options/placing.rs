//! Options of placement: their names, their values, and which of them contradict each other.

use std::path::PathBuf;

use clap::Args;
use rsd_core::place::policy::{BindTo, Compat, Directive, MapBy, MapByOption, MemBind, Policy, PolicyError, RankBy};

use crate::exit::Failure;

/// The heading of these options in help.
pub(crate) const PLACEMENT: &str = "Placement";

/// The most GPUs of a rank. A larger number is a typing error.
const GPUS_MAX: i64 = 1024;

/// How ranks are mapped, numbered and bound.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Placing {
    /// Where ranks go: slot, node, core, numa, package, ppr:2:node, …; with modifiers such as :pe=2, :span [default: slot]
    #[arg(long, help_heading = PLACEMENT, value_name = "MAPPING", value_parser = mapping)]
    pub(crate) map_by: Option<MapByOption>,
    /// How ranks are numbered: slot, node, fill, span [default: follows the mapping]
    #[arg(long, help_heading = PLACEMENT, value_name = "ORDER")]
    pub(crate) rank_by: Option<RankBy>,
    /// What each rank is bound to: none, hwthread, core, l3cache, numa, package [default: its share of the node's cores]
    #[arg(long, help_heading = PLACEMENT, value_name = "CPUS")]
    pub(crate) bind_to: Option<BindTo>,
    /// Where a rank's memory comes from: none, local, preferred, interleave [default: the kernel's choice]
    #[arg(long, help_heading = PLACEMENT, value_name = "MEMORY")]
    pub(crate) mem_bind: Option<MemBind>,
    /// Allow more ranks than slots
    #[arg(long, help_heading = PLACEMENT)]
    pub(crate) oversubscribe: bool,
    /// Count hardware threads, not cores, as cpus
    #[arg(long, help_heading = PLACEMENT)]
    pub(crate) use_hwthread_cpus: bool,
    /// A file with one line per rank: `rank 0=a slot=0-3`, `rank 1=b slot=0:1` (package 0, core 1)
    #[arg(long, help_heading = PLACEMENT, value_name = "FILE")]
    pub(crate) rankfile: Option<PathBuf>,
    /// Number of GPUs per rank: those nearest to its cores
    #[arg(long, help_heading = PLACEMENT, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=GPUS_MAX))]
    pub(crate) gpus_per_rank: Option<u32>,
    /// Hide all other GPUs from a rank (sets CUDA_VISIBLE_DEVICES)
    #[arg(long, help_heading = PLACEMENT, requires = "gpus_per_rank")]
    pub(crate) gpus_visible: bool,
    /// Place ranks as another launcher does: openmpi5, hydra
    #[arg(long, help_heading = PLACEMENT, value_name = "LAUNCHER")]
    pub(crate) compat: Option<Compat>,
}

fn mapping(text: &str) -> Result<MapByOption, PolicyError> {
    match text.trim().is_empty() {
        true => Err(PolicyError { text: "expected a mapping: slot, node, core, numa, package, …".into() }),
        false => text.parse(),
    }
}

/// The file that a mapping follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Listing<'a> {
    /// None: the hosts alone decide where ranks go.
    None,
    /// A host file for programs without hosts of their own; rank i takes its i-th entry.
    Seq(Option<&'a str>),
    /// A rank file.
    Rankfile(&'a std::path::Path),
}

impl Placing {
    /// Returns the policy that all options together request, and the file that lists the ranks, if any.
    pub(crate) fn policy(&self) -> Result<(Policy, Listing<'_>), Failure> {
        let (mut map_by, file) = match &self.map_by {
            Some(MapByOption { map_by, file }) => (map_by.clone(), file.as_deref()),
            None => (MapBy::default(), None),
        };
        if self.oversubscribe && map_by.oversubscribe == Some(false) {
            let text = "--oversubscribe contradicts nooversubscribe of --map-by: leave out one of them";
            return Err(Failure::usage(text));
        }
        if self.oversubscribe {
            map_by.oversubscribe = Some(true);
        }
        map_by.hwtcpus |= self.use_hwthread_cpus;
        let listing = match (&map_by.directive, file, &self.rankfile) {
            (Some(Directive::Rankfile), Some(_), Some(_)) => {
                return Err(Failure::usage("two rank files given: leave out --rankfile, or file= of --map-by"));
            }
            (Some(Directive::Rankfile), Some(file), None) => Listing::Rankfile(file.as_ref()),
            (Some(Directive::Rankfile) | None, None, Some(file)) => {
                let fits = map_by.pe.is_none() && !map_by.span && !map_by.nolocal;
                if !fits {
                    let text = format!("--map-by {map_by}: the rank file decides this; leave out pe, span and nolocal");
                    return Err(Failure::usage(text));
                }
                map_by.directive = Some(Directive::Rankfile);
                Listing::Rankfile(file)
            }
            (Some(Directive::Rankfile), None, None) => {
                return Err(Failure::usage("--map-by rankfile needs a file: --rankfile FILE"));
            }
            (Some(_), _, Some(_)) => {
                let text = format!(
                    "--map-by {map_by}: the rank file decides where each rank goes; leave out --map-by or --rankfile"
                );
                return Err(Failure::usage(text));
            }
            (Some(Directive::Seq), file, None) => Listing::Seq(file),
            (None, Some(_), _) | (Some(_) | None, _, None) => Listing::None,
        };
        let policy = Policy {
            map_by,
            rank_by: self.rank_by,
            bind_to: self.bind_to,
            mem_bind: self.mem_bind,
            compat: self.compat.unwrap_or_default(),
            gpus_per_rank: self.gpus_per_rank.unwrap_or(0),
        };
        policy.check().map_err(Failure::usage)?;
        Ok((policy, listing))
    }
}

//! `rsctl ports`.

/// A form for other programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Form {
    /// A ruleset for nft -f, to load on every node
    Nftables,
    /// A NetworkPolicy, and port entries for containers
    K8s,
}

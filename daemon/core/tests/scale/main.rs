//! What a DVM of ten thousand nodes costs: all of its daemons in one thread, and a job with 128 ranks on each node.
//!
//! Every daemon is a real one ([`rsd_core::Rsd`]), and every message between daemons is encoded and decoded. On the last node, a real step
//! ([`rsd_core::Step`]) serves ranks that speak PMI-1; on the others, a model sends messages of the same kinds. The whole is measured at
//! 100, 1,000 and 10,000 nodes. The bounds are on what is counted: rounds, messages, bytes and memory; and on how these grow. Times are
//! shown and depend on the machine.
//!
//! `cargo xtask bench scale` prints the table of ARCHITECTURE.md.

mod bounds;
mod dvm;
mod leaf;
mod meter;
mod phases;
mod table;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.iter().any(|arg| arg == "--list") {
        return println!("scale: test");
    }
    // As the test runner: a word selects the tests whose name contains it.
    let is_selected = |word: &String| word.starts_with('-') || "scale".contains(word.as_str());
    if !args.iter().all(is_selected) {
        return;
    }
    let named = args.iter().find_map(|arg| arg.strip_prefix("--nodes="));
    let named = named.map(|sizes| sizes.split(',').filter_map(|size| size.parse().ok()).collect());
    let sizes: Vec<usize> = named.unwrap_or_else(|| vec![100, 1_000, 10_000]);
    let runs: Vec<_> = sizes.iter().map(|nodes| phases::run(*nodes)).collect();
    print!("{}", table::table(&sizes, &runs));
    let wrong = bounds::exceeded(&sizes, &runs);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

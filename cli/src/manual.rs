//! `rsctl man`: the manual, generated from the command line's definitions and the topics.

use std::fs;
use std::io;
use std::path::Path;

use clap::CommandFactory;
use rsd_proto::transport::exit;

use crate::exit::Failure;
use crate::options::Cli;
use crate::topics::{TOPICS, man};

/// Writes the pages of commands into `man1` and those of topics into `man7` below `directory`. `directory` may also be `man1` itself.
pub(crate) fn write(directory: &Path) -> Result<u8, Failure> {
    let root = match directory.file_name() {
        Some(name) if name == "man1" => directory.parent().unwrap_or(directory),
        Some(_) | None => directory,
    };
    pages(root)
        .map(|()| 0)
        .map_err(|error| Failure::new(exit::SYSTEM, format!("cannot write to {}: {error}", directory.display())))
}

fn pages(root: &Path) -> io::Result<()> {
    let (commands, topics) = (root.join("man1"), root.join("man7"));
    fs::create_dir_all(&commands)?;
    fs::create_dir_all(&topics)?;
    clap_mangen::generate_to(Cli::command(), commands)?;
    TOPICS.iter().try_for_each(|topic| fs::write(topics.join(format!("{}.7", man::name(topic))), man::page(topic)))
}

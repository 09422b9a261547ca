//! `rsctl help`: commands and topics.

use clap::CommandFactory;
use rsd_config::nearest::nearest;

use crate::exit::Failure;
use crate::look::Look;
use crate::options::Cli;
use crate::topics::{self, TOPICS, terminal};
use crate::{pager, print};

/// `rsctl help [TOPIC|COMMAND…]`.
pub(crate) fn help(words: &[String]) -> Result<u8, Failure> {
    let mut root = Cli::command();
    root.build();
    match words {
        [] => print::out(&root.render_long_help().to_string())?,
        // A topic wins over a command of the same name: the help of the command `mpi` is `rsctl mpi --help`.
        [word] if let Some(topic) = topics::find(word) => pager::page(&terminal::text(topic, &Look::of_stdout()))?,
        words => {
            let mut command = &mut root;
            for word in words {
                let names: Vec<String> = command.get_subcommands().map(|it| it.get_name().to_owned()).collect();
                command = command.find_subcommand_mut(word).ok_or_else(|| unknown(word, &names, words.len() == 1))?;
            }
            print::out(&command.render_long_help().to_string())?;
        }
    }
    Ok(0)
}

fn unknown(word: &str, commands: &[String], topics_too: bool) -> Failure {
    let topics = TOPICS.iter().map(|topic| topic.name).filter(|_| topics_too);
    let hint = nearest(word, commands.iter().map(String::as_str).chain(topics));
    let hint = hint.map(|name| format!("; did you mean {name}?")).unwrap_or_default();
    let list = if topics_too { format!("\ntopics:\n{}", topics::list()) } else { "\n".to_owned() };
    Failure::usage(format!("no command or topic named `{word}`{hint}{list}commands: {}", commands.join(", ")))
}

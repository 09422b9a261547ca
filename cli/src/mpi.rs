//! `rsctl mpi`: the variables that the MPI library reads from its environment.

use rsd_proto::library::SETTINGS;

use crate::exit::Failure;
use crate::{json, print};

/// `rsctl mpi settings`: prints the library's own table.
pub(crate) fn settings(as_json: bool) -> Result<u8, Failure> {
    let text = if as_json {
        let settings = SETTINGS.iter().map(|it| {
            serde_json::json!({ "name": it.name, "values": it.values, "default": it.default, "meaning": it.meaning })
        });
        json::document(serde_json::json!({ "settings": settings.collect::<Vec<_>>() })) + "\n"
    } else {
        let one = |it: &rsd_proto::library::Setting| {
            format!("{}={}\n  {}\n  default: {}\n", it.name, it.values, it.meaning, it.default)
        };
        SETTINGS.iter().map(one).collect::<Vec<_>>().join("\n")
    };
    print::out(&text).map(|()| 0)
}

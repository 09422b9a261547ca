//! `rsctl name`: the names that ranks have published, as a table or JSON.

use rsd_proto::v1::{ListNamesRequest, PublishedName};
use serde_json::json;

use crate::dvm::{self, Client};
use crate::exit::Failure;
use crate::json;
use crate::print::{self, Align, out, say};

/// `name ls`.
pub(crate) async fn ls(mut client: Client, as_json: bool) -> Result<u8, Failure> {
    let names = dvm::answer("listing the names", client.list_names(ListNamesRequest {})).await?.names;
    if as_json {
        let names: Vec<_> = names.iter().map(to_json).collect();
        out(&(json::document(json!({ "names": names })) + "\n"))?;
    } else if names.is_empty() {
        say("no published names");
    } else {
        out(&table(&names))?;
    }
    Ok(0)
}

fn to_json(name: &PublishedName) -> serde_json::Value {
    json!({
        "name": String::from_utf8_lossy(&name.name),
        "job": name.job,
        "port": String::from_utf8_lossy(&name.port),
        "uid": name.uid,
    })
}

fn table(names: &[PublishedName]) -> String {
    let columns = [("NAME", Align::Left), ("JOB", Align::Right), ("PORT", Align::Left)];
    let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
    let rows: Vec<_> = names.iter().map(|name| [text(&name.name), name.job.to_string(), text(&name.port)]).collect();
    print::table(columns, &rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_is_a_row() {
        let name = |name: &'static str, job| PublishedName {
            name: name.into(),
            port: "tag#0$ 10.0.0.1:7\u{7}".into(),
            job,
            uid: None,
        };
        assert_eq!(
            table(&[name("ocean", 3), name("land mask", 12)]),
            "\
NAME       JOB  PORT
ocean        3  tag#0$ 10.0.0.1:7\\x07
land mask   12  tag#0$ 10.0.0.1:7\\x07
"
        );
    }
}

//! Values that options of several commands take.

use std::time::Duration;

use rsd_proto::join;

/// Parses a duration: `250ms`, `90s`, `5m`.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    rsd_config::duration::parse(text).map_err(|error| error.to_string())
}

/// Parses a list of frameworks into its canonical form. `else_` completes the error: it says how to set other variables.
pub(super) fn frameworks(text: &str, else_: &str) -> Result<String, String> {
    // srun's word for forwarding the environment, which rsctl always does.
    if text.eq_ignore_ascii_case("ALL") {
        return Ok(String::new());
    }
    let found = rsd_proto::frameworks::parse(text).map_err(|error| format!("{error}; {else_}"))?;
    Ok(rsd_proto::frameworks::list(&found))
}

/// Parses the name of a group.
pub(super) fn group_name(text: &str) -> Result<String, String> {
    join::check_name(text).map(|()| text.to_owned()).map_err(|error| error.to_string())
}

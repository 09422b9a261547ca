//! Resources that a user declares and jobs reserve, as text: `licence:4`. rsd gives them no meaning: it only counts. rsctl and rsd check
//! them, and the head again.

/// The name of a node's memory, in bytes, among its resources.
pub const MEMORY: &str = "memory";
/// The name by which users request GPUs, of which nodes know by themselves.
pub const GPU: &str = "gpu";
/// The most resources of a node, of the DVM, or of a job.
pub const RESOURCES_MAX: usize = 32;

/// Parses `licence:4`, or `licence` for one. Returns why it is invalid.
pub fn parse(text: &str) -> Result<(String, u64), String> {
    let (name, amount) = text.split_once([':', '=']).unwrap_or((text, "1"));
    check_name(name)?;
    match amount.parse() {
        Ok(amount) if amount > 0 => Ok((name.to_owned(), amount)),
        Ok(_) | Err(_) => Err(format!("`{text}`: expected a name and a number from 1, such as `licence:2`")),
    }
}

/// Checks the name of a resource. Returns why it is invalid.
pub fn check_name(name: &str) -> Result<(), String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    match (1..=63).contains(&name.len())
        && name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(fits)
    {
        true => Ok(()),
        false => Err(format!(
            "invalid name of a resource `{}`: a letter, then up to 62 letters, digits, `_`, `-` and `.`",
            name.chars().take(64).collect::<String>()
        )),
    }
}

/// Parses what a node or the DVM declares: each resource once, and none that nodes know by themselves.
pub fn declared(texts: &[String]) -> Result<Vec<(String, u64)>, String> {
    let mut found: Vec<(String, u64)> = Vec::new();
    for text in texts.iter().flat_map(|text| text.split(',')) {
        let (name, amount) = parse(text)?;
        if name == MEMORY || name == GPU {
            return Err(format!("`{text}`: nodes know their memory and GPUs by themselves"));
        }
        if found.iter().any(|(other, _)| *other == name) {
            return Err(format!("the resource {name} is declared twice"));
        }
        found.push((name, amount));
    }
    match found.len() <= RESOURCES_MAX {
        true => Ok(found),
        false => Err(format!("{} resources: the most is {RESOURCES_MAX}", found.len())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_are_a_name_and_an_amount() {
        assert_eq!(parse("licence:4"), Ok(("licence".to_owned(), 4)));
        assert_eq!(parse("fpga"), Ok(("fpga".to_owned(), 1)));
        for text in ["", ":4", "a:0", "a:-1", "a:x", "1a:1", "a b:1"] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert!(declared(&["a:1,b:2".to_owned()]).is_ok());
        for text in ["a:1,a:2", "memory:4", "gpu:1"] {
            assert!(declared(&[text.to_owned()]).is_err(), "{text}");
        }
    }
}

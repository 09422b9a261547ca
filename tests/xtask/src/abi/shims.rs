//! Generates the exported functions in Rust, a file per chapter, as lists for the macro of `client-lib/src/exports`.

use std::fmt::Write;

use super::tables::{Function, Parameter, Tables, Way};

/// Handles that C passes as pointers, and their Rust types.
const HANDLES: [(&str, &str); 11] = [
    ("MPI_Comm", "CommHandle"),
    ("MPI_Datatype", "DatatypeHandle"),
    ("MPI_Errhandler", "ErrhandlerHandle"),
    ("MPI_File", "FileHandle"),
    ("MPI_Group", "GroupHandle"),
    ("MPI_Info", "InfoHandle"),
    ("MPI_Message", "MessageHandle"),
    ("MPI_Op", "OpHandle"),
    ("MPI_Request", "RequestHandle"),
    ("MPI_Session", "SessionHandle"),
    ("MPI_Win", "WinHandle"),
];

/// Other C types without pointers.
const PLAIN: [(&str, &str); 12] = [
    ("int", "c_int"),
    ("char", "c_char"),
    ("void", "c_void"),
    ("double", "f64"),
    ("MPI_Aint", "i64"),
    ("MPI_Count", "i64"),
    ("MPI_Offset", "i64"),
    ("MPI_Status", "Status"),
    ("MPI_T_cb_safety", "c_int"),
    ("MPI_T_source_order", "c_int"),
    ("MPI_T_enum", "usize"),
    ("MPI_T_event_instance", "usize"),
];

/// Handles of the tools interface.
const TOOLS: [&str; 4] = ["MPI_T_cvar_handle", "MPI_T_event_registration", "MPI_T_pvar_handle", "MPI_T_pvar_session"];

/// Objects with error handlers: a function reports its errors to the first such object among its arguments.
const SCOPES: [(&str, &str); 4] =
    [("MPI_Comm", "Comm"), ("MPI_Win", "Win"), ("MPI_File", "File"), ("MPI_Session", "Session")];

const WIDTH: usize = 120;

/// The file of one chapter.
pub(super) fn chapter(tables: &Tables, chapter: &str) -> String {
    let mut text = format!(
        "//! The functions of the chapter `{chapter}`. Generated from `abi/*.tsv` by `cargo xtask abi`: do not edit.\n\n\
         use super::*;\n\nexports! {{\n"
    );
    for function in tables.functions.iter().filter(|function| function.chapter == chapter) {
        let parameters = function.parameters.iter().filter(|parameter| parameter.ty != "...");
        let parameters = parameters.map(|one| format!("{}: {}", rust_name(&one.name), rust_type(tables, one)));
        let result = rust_value(&function.result);
        let head =
            list(&format!("    fn {} P{}(", function.name, function.name), parameters, &format!(") -> {result}"));
        let _ = write!(text, "{head}\n{}\n", body(tables, function));
    }
    text + "}\n"
}

/// The body of a shim.
fn body(tables: &Tables, function: &Function) -> String {
    let scope = scope(function);
    let Some(implementation) = tables.implementation(function) else {
        return format!("        => unsupported({scope});");
    };
    let way = match implementation.way {
        Way::Inside => format!("call({scope})"),
        Way::Always => format!("call_always({scope})"),
        Way::Plain => "plain()".to_owned(),
    };
    let form = implementation.gets_form.then(|| tables.narrow_of(function).is_some().to_string());
    let arguments = arguments(tables, function).into_iter().chain(form);
    list(&format!("        => {way} {}(", implementation.path), arguments, ");")
}

/// The arguments of the implementation. Integers have the wider type, whichever form was called.
fn arguments(tables: &Tables, function: &Function) -> Vec<String> {
    let narrow = tables.narrow_of(function);
    let other = narrow.or_else(|| tables.wide_of(function));
    let width = if narrow.is_some() { "Wide" } else { "Narrow" };
    let mut arguments = Vec::new();
    for (at, parameter) in function.parameters.iter().enumerate().filter(|(_, parameter)| parameter.ty != "...") {
        let name = rust_name(&parameter.name);
        let twin = other.map(|other| &other.parameters[at]);
        let differs = twin.is_some_and(|twin| twin.ty != parameter.ty);
        if differs && tables.is_callback(&parameter.ty) {
            arguments.extend([name, narrow.is_some().to_string()]);
            continue;
        }
        let int = |one: &Parameter| one.ty.trim_start_matches("const ").trim_end_matches([' ', '*']) == "int";
        let varies = twin.is_some_and(|twin| int(twin) != int(parameter));
        let array = !parameter.suffix.is_empty() || parameter.ty.ends_with('*');
        arguments.push(match (varies, array) {
            (false, _) => name,
            (true, false) if narrow.is_some() => name,
            (true, false) => format!("i64::from({name})"),
            (true, true) if parameter.ty.starts_with("const ") => format!("Ints::{width}({name})"),
            (true, true) => format!("IntsOut::{width}({name})"),
        });
    }
    arguments
}

fn scope(function: &Function) -> String {
    if function.name.starts_with("MPI_T_") {
        return "Scope::Tool".to_owned();
    }
    let found = function.parameters.iter().filter(|one| one.suffix.is_empty()).find_map(|one| {
        let (_, scope) = SCOPES.iter().find(|(ty, _)| *ty == one.ty)?;
        Some(format!("Scope::{scope}({})", one.name))
    });
    // Without a file, the handler for future files applies (MPI 5.0 §14.7).
    let is_about_files = function.name.starts_with("MPI_File_") && !function.name.ends_with("_errhandler")
        || function.name.starts_with("MPI_Register_datarep");
    if is_about_files && found.as_ref().is_none_or(|found| !found.starts_with("Scope::File")) {
        return "Scope::File(FileHandle::NULL)".to_owned();
    }
    // If the function creates the object, the error handler is an argument.
    let passed = || function.parameters.iter().find(|one| one.ty == "MPI_Errhandler" && one.suffix.is_empty());
    let scope = found.or_else(|| Some(format!("Scope::Errhandler({})", passed()?.name)));
    scope.unwrap_or("Scope::World".to_owned())
}

/// Adds an underscore to names that are Rust keywords.
fn rust_name(name: &str) -> String {
    match name {
        "type" | "fn" | "in" | "ref" | "match" => format!("{name}_"),
        _ => name.to_owned(),
    }
}

fn rust_type(tables: &Tables, parameter: &Parameter) -> String {
    // Addresses of functions are checked before they are called: some values are not functions.
    if tables.is_callback(&parameter.ty) {
        return "*const c_void".to_owned();
    }
    let (constant, ty) = match parameter.ty.strip_prefix("const ") {
        Some(ty) => ("const", ty),
        None => ("mut", &*parameter.ty),
    };
    let stars = ty.chars().filter(|&star| star == '*').count();
    let value = rust_value(ty.trim_end_matches([' ', '*']));
    let pointers = "*mut ".repeat(stars.saturating_sub(usize::from(parameter.suffix.is_empty())));
    match (&*parameter.suffix, stars) {
        ("", 0) => value,
        ("[][3]", 0) => format!("*const [{value}; 3]"),
        (_, _) => format!("*{constant} {pointers}{value}"),
    }
}

fn rust_value(ty: &str) -> String {
    let named = HANDLES.iter().chain(&PLAIN).find(|(c, _)| *c == ty).map(|(_, rust)| *rust);
    let named = named.or_else(|| TOOLS.contains(&ty).then_some("usize"));
    // An unknown type is written as it is, and does not compile.
    named.unwrap_or(ty).to_owned()
}

/// `before`, the items separated by commas, `after`; wrapped if one line is too short.
fn list(before: &str, items: impl Iterator<Item = String>, after: &str) -> String {
    let items: Vec<String> = items.collect();
    let line = format!("{before}{}{after}", items.join(", "));
    if line.len() <= WIDTH {
        return line;
    }
    let indent = before.len() - before.trim_start().len() + 4;
    let mut text = before.to_owned();
    let mut column = WIDTH;
    for item in &items {
        if column + item.len() + 2 > WIDTH {
            text = format!("{}\n{}", text.trim_end(), " ".repeat(indent));
            column = indent;
        }
        let _ = write!(text, "{item}, ");
        column += item.len() + 2;
    }
    format!("{}\n{}{after}", text.trim_end().trim_end_matches(','), " ".repeat(indent - 4))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_call_the_same_function_with_wide_integers() {
        let tables = Tables::read().unwrap();
        let given = |name: &str| arguments(&tables, tables.find(name).unwrap()).join(", ");
        assert_eq!(given("MPI_Send"), "buf, i64::from(count), datatype, dest, tag, comm");
        assert_eq!(given("MPI_Send_c"), "buf, count, datatype, dest, tag, comm");
        let counts = |width| {
            format!(
                "sendbuf, Ints::{width}(sendcounts), Ints::{width}(displs), sendtype, recvbuf, {}, recvtype, root, comm",
                if width == "Wide" { "recvcount" } else { "i64::from(recvcount)" }
            )
        };
        assert_eq!(given("MPI_Scatterv"), counts("Narrow"));
        assert_eq!(given("MPI_Scatterv_c"), counts("Wide"));
        assert_eq!(given("MPI_Type_size"), "datatype, IntsOut::Narrow(size)");
        assert_eq!(given("MPI_Type_size_x"), "datatype, IntsOut::Wide(size)");
        assert_eq!(given("MPI_Op_create"), "user_fn, false, commute, op");
        assert_eq!(given("MPI_Op_create_c"), "user_fn, true, commute, op");
        assert_eq!(given("MPI_Type_get_extent_c"), "datatype, lb, extent", "both forms have wide integers");
        assert_eq!(given("MPI_Win_shared_query"), "win, rank, size, IntsOut::Narrow(disp_unit), baseptr");
    }

    #[test]
    fn parameters_have_the_types_of_the_c_prototypes() {
        let tables = Tables::read().unwrap();
        let types = |name: &str| {
            let function = tables.find(name).unwrap();
            function.parameters.iter().map(|one| rust_type(&tables, one)).collect::<Vec<_>>().join(", ")
        };
        assert_eq!(types("MPI_Init"), "*mut c_int, *mut *mut *mut c_char");
        assert_eq!(types("MPI_Group_range_incl"), "GroupHandle, c_int, *const [c_int; 3], *mut GroupHandle");
        assert_eq!(types("MPI_Info_create_env"), "c_int, *mut *mut c_char, *mut InfoHandle");
        assert_eq!(types("MPI_Op_create"), "*const c_void, c_int, *mut OpHandle");
        assert_eq!(types("MPI_Startall"), "c_int, *mut RequestHandle");
        assert_eq!(types("MPI_Get_address"), "*const c_void, *mut i64");
        let spawn = "c_int, *mut *mut c_char, *mut *mut *mut c_char, *const c_int, *const InfoHandle, c_int, CommHandle, \
                     *mut CommHandle, *mut c_int";
        assert_eq!(types("MPI_Comm_spawn_multiple"), spawn);
    }

    #[test]
    fn errors_go_to_the_first_object_that_has_an_error_handler() {
        let tables = Tables::read().unwrap();
        let scope = |name: &str| scope(tables.find(name).unwrap());
        assert_eq!(scope("MPI_Send"), "Scope::Comm(comm)");
        assert_eq!(scope("MPI_Put"), "Scope::Win(win)");
        assert_eq!(scope("MPI_Comm_free"), "Scope::World", "a pointer to a communicator is not a communicator");
        assert_eq!(scope("MPI_Wait"), "Scope::World");
        assert_eq!(scope("MPI_File_get_size"), "Scope::File(fh)");
        for name in ["MPI_File_open", "MPI_File_close", "MPI_File_delete", "MPI_Register_datarep"] {
            assert_eq!(scope(name), "Scope::File(FileHandle::NULL)", "{name}");
        }
        assert_eq!(scope("MPI_Comm_set_errhandler"), "Scope::Comm(comm)");
        assert_eq!(scope("MPI_Comm_create_from_group"), "Scope::Errhandler(errhandler)");
    }
}

//! Gives the shared library the name that programs built for the standard ABI look for.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libmpi_abi.so.1");
    println!("cargo::rerun-if-changed=build.rs");
}

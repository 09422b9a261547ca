//! Sets the shared library's name to the one that programs load.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libpmi.so.0");
    println!("cargo::rerun-if-changed=build.rs");
}

//! Sets the shared library's name to the one that programs built for the standard ABI load.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libmpi_abi.so.1");
    println!("cargo::rerun-if-changed=build.rs");
}

//! The binary. All code is in the library, where tests can use it.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // The allocator asks for huge pages. A single small allocation then keeps 2 MiB resident, and they are no faster here.
    #[cfg(target_os = "linux")]
    let _ = rustix::thread::disable_transparent_huge_pages(true);
    werkruf::cli::main()
}

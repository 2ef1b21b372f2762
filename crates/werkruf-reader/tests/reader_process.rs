//! The program as the server starts it: answers, limits and the sandbox.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, also outside its own function")]

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use werkruf_reader::confine;

fn run(arguments: &[&str], input: &[u8]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_werkruf-reader"));
    let mut child =
        command.args(arguments).env_clear().stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // A process that refuses its input has closed the pipe.
    let _ = stdin.write_all(input);
    drop(stdin);
    child.wait_with_output().unwrap()
}

fn answer(arguments: &[&str], input: &[u8]) -> Value {
    let output = run(arguments, input);
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Whether this kernel enforces Landlock. A thread that tries it is confined until its end, so the trial has its own.
fn has_landlock() -> bool {
    std::thread::scope(|scope| scope.spawn(|| confine::sandbox().is_ok()).join().unwrap())
}

/// Whether the Landlock of this kernel has rules for TCP.
fn knows_tcp() -> bool {
    use landlock::{ABI, Access, AccessNet, CompatLevel, Compatible, Ruleset, RulesetAttr};
    Ruleset::default().set_compatibility(CompatLevel::HardRequirement).handle_access(AccessNet::from_all(ABI::V4)).is_ok()
}

#[test]
fn a_file_becomes_text_and_a_bad_one_a_reason() {
    let arguments = ["--sandbox", "off", "html"];
    let page = answer(&arguments, b"<title>T</title><p>a < b</p>");
    assert_eq!(page, json!({"text": {"kind": "html", "title": "T", "text": "a < b"}}));
    let binary = answer(&["--sandbox", "off", "txt"], b"\x00\x01\x02");
    let message = "it is not text, or in an unknown encoding; save it as UTF-8";
    assert_eq!(binary, json!({"error": {"code": "unreadable", "message": message}}));
    for wrong in [&["--sandbox", "no", "txt"][..], &["exe"], &[], &["txt", "pdf"]] {
        let output = run(wrong, b"");
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{output:?}");
    }
}

#[test]
fn without_landlock_nothing_is_read_unless_the_sandbox_is_off() {
    assert_eq!(answer(&["--sandbox", "off", "--check"], b""), json!("ready"));
    let (checked, read) = (answer(&["--check"], b""), answer(&["txt"], b"Text"));
    if has_landlock() {
        println!("this kernel has Landlock");
        assert_eq!((checked, read), (json!("ready"), json!({"text": {"kind": "text", "title": null, "text": "Text"}})));
    } else {
        println!("this kernel has no Landlock");
        let refused = json!({"error": {"code": "reader_sandbox", "message": confine::NoSandbox.to_string()}});
        assert_eq!((checked, read), (refused.clone(), refused));
    }
}

#[test]
fn the_sandbox_denies_files_and_connections() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    assert!(std::fs::read("/etc/passwd").is_ok() && TcpStream::connect(address).is_ok(), "both work outside");
    let inside = || {
        confine::sandbox().ok().map(|()| {
            let tries = [
                std::fs::read("/etc/passwd").map(|_| ()),
                std::fs::write("/tmp/werkruf-reader-probe", "x"),
                std::fs::read_dir("/").map(|_| ()),
                TcpStream::connect(address).map(|_| ()),
            ];
            tries.map(|tried| tried.map_err(|error| error.kind()))
        })
    };
    match std::thread::scope(|scope| scope.spawn(inside).join().unwrap()) {
        Some([read, write, list, connect]) => {
            println!("this kernel has Landlock: read {read:?}, write {write:?}, list {list:?}, connect {connect:?}");
            let denied = Err(std::io::ErrorKind::PermissionDenied);
            assert_eq!([read, write, list], [denied; 3]);
            // Kernels before 6.7 know no rules for TCP; there the limit of descriptors denies sockets.
            assert_eq!(connect == denied, knows_tcp());
        }
        None => println!("this kernel has no Landlock"),
    }
    assert!(std::fs::read("/etc/passwd").is_ok(), "only the confined thread is denied");
}

/// Runs in a process of its own, because limits hold for a whole process.
#[test]
fn limits_deny_new_descriptors() {
    const PROBE: &str = "WERKRUF_READER_PROBE";
    if let Ok(address) = std::env::var(PROBE) {
        confine::confine(false).unwrap();
        let file = std::fs::File::open("/etc/passwd").err().and_then(|error| error.raw_os_error());
        let socket = TcpStream::connect(address).err().and_then(|error| error.raw_os_error());
        let memory = Vec::<u8>::new().try_reserve(usize::try_from(confine::MAX_MEMORY).unwrap()).is_err();
        let seconds = rustix::process::getrlimit(rustix::process::Resource::Cpu).current;
        println!("probe {file:?} {socket:?} {memory} {seconds:?}");
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let arguments = ["--exact", "limits_deny_new_descriptors", "--nocapture"];
    let mut command = Command::new(std::env::current_exe().unwrap());
    let output = command.args(arguments).env(PROBE, listener.local_addr().unwrap().to_string()).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    // 24 is EMFILE: too many open files.
    assert!(printed.contains("probe Some(24) Some(24) true Some(60)"), "{printed}");
}

#[test]
fn a_file_that_needs_too_much_memory_ends_only_its_process() {
    // Without a limit the answer would be the same for both: the page has no text.
    let small = answer(&["--sandbox", "off", "pdf"], &pdf(100 << 20));
    assert_eq!(small["error"]["code"], "unreadable", "{small}");
    let output = run(&["--sandbox", "off", "pdf"], &pdf(1_200 << 20));
    let reason = String::from_utf8_lossy(&output.stderr);
    // 6 is SIGABRT, the end of a Rust program that gets no memory.
    assert!(output.status.signal() == Some(6) && reason.contains("memory allocation"), "{:?} {reason}", output.status);
    assert!(output.stdout.is_empty());
}

/// A page of drawing operations that expands to this many bytes.
fn pdf(size: usize) -> Vec<u8> {
    let mut squeezed = flate(size);
    let mut pdf = format!(
        "%PDF-1.4\n1 0 obj\n<< /Type /Catalog /Pages 2 0 R >>\nendobj\n2 0 obj\n<< /Type /Pages /Count 1 /Kids [3 0 R] >>\nendobj\n3 0 obj\n\
        << /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents 4 0 R >>\nendobj\n4 0 obj\n<< /Filter /FlateDecode /Length {} >>\nstream\n",
        squeezed.len()
    )
    .into_bytes();
    pdf.append(&mut squeezed);
    pdf.extend(b"\nendstream\nendobj\ntrailer\n<< /Size 5 /Root 1 0 R >>\n%%EOF\n");
    pdf
}

/// Spaces, compressed as a zlib stream of stored and repeated bytes.
fn flate(size: usize) -> Vec<u8> {
    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    let blank = vec![b' '; 1 << 20];
    (0..size >> 20).for_each(|_| encoder.write_all(&blank).unwrap());
    encoder.finish().unwrap()
}

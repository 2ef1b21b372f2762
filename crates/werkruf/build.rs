//! Names the commit of the checkout in `WERKRUF_COMMIT`, unless the build sets that variable itself, and lists the files that are part of the
//! program: the console, if `make console` has built it, the OpenAPI document and Swagger UI.

use std::fmt::Write as _;
use std::io::{Cursor, Error, Read, Result, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::Value;
use sha2::{Digest, Sha256};

/// Where Vite writes the console, from the folder of this crate.
const CONSOLE: &str = "../../web/dist";
/// The page of a program without the console, and the page of the API reference.
const OWN_PAGES: &str = "src/api/pages";
/// The document of the API reference.
const OPENAPI: &str = "../../docs/openapi.json";
/// What the API reference needs of Swagger UI.
const SWAGGER_UI: [&str; 2] = ["swagger-ui-bundle.js", "swagger-ui.css"];

fn main() -> Result<()> {
    name_commit();
    link_small();
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or_else(|| Error::other("cargo names no OUT_DIR"))?);
    let mut list = String::new();
    write_list(&mut list, &out, "CONSOLE", &console_files()?)?;
    write_list(&mut list, &out, "OWN_PAGES", &own_pages()?)?;
    write_list(&mut list, &out, "SWAGGER_UI", &swagger_ui_files()?)?;
    write_list(&mut list, &out, "OPENAPI", &openapi_document()?)?;
    std::fs::write(out.join("embedded_files.rs"), list)
}

fn name_commit() {
    println!("cargo::rerun-if-env-changed=WERKRUF_COMMIT");
    if std::env::var_os("WERKRUF_COMMIT").is_some() {
        return;
    }
    let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) else { return };
    // The files that change with the commit. A worktree has its own HEAD and shares the branches.
    for name in ["HEAD", "logs/HEAD"] {
        if let Some(path) = git(&["rev-parse", "--git-path", name]).filter(|path| Path::new(path).exists()) {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    println!("cargo::rustc-env=WERKRUF_COMMIT={commit}");
}

/// What the linker can do about the size of the program that is shipped, where the system and the linker are known to support it.
fn link_small() {
    println!("cargo::rerun-if-env-changed=RUSTC_LINKER");
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let target = variable("TARGET");
    if variable("OPT_LEVEL") != "z" || target != variable("HOST") || !target.ends_with("-linux-gnu") {
        return;
    }
    // Addresses in the packed form take a megabyte less. The program then needs glibc 2.36 (2022) wherever it runs.
    if output("getconf", &["GNU_LIBC_VERSION"]).is_some_and(|text| version_of(&text) >= Some((2, 36))) {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
    // Equal functions are kept once. Only LLD does that: it is the linker of Rust's own toolchains for this target, unless somebody names another.
    let flags = variable("CARGO_ENCODED_RUSTFLAGS");
    let is_named = !variable("RUSTC_LINKER").is_empty() || ["linker", "fuse-ld", "ld-path"].iter().any(|flag| flags.contains(flag));
    let own_linker = || {
        let sysroot = output(&variable("RUSTC"), &["--print", "sysroot"])?;
        Some(Path::new(&sysroot).join("lib/rustlib").join(&target).join("bin/gcc-ld/ld.lld").exists())
    };
    if target == "x86_64-unknown-linux-gnu" && !is_named && own_linker() == Some(true) {
        println!("cargo::rustc-link-arg-bins=-Wl,--icf=all,-O2");
    }
}

/// The version in `glibc 2.36`.
fn version_of(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.strip_prefix("glibc ")?.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// The output of a git command; nothing without git or outside a checkout.
fn git(arguments: &[&str]) -> Option<String> {
    output("git", arguments)
}

fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok().filter(|output| output.status.success())?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

/// The path and the content of each file of the console; none if it was not built.
fn console_files() -> Result<Vec<(String, Vec<u8>)>> {
    let folder = Path::new(CONSOLE);
    // Cargo would run this script at every build for a folder that does not exist.
    if folder.parent().is_some_and(Path::is_dir) && (folder.is_dir() || std::fs::create_dir(folder).is_ok()) {
        println!("cargo::rerun-if-changed={CONSOLE}");
    }
    let mut files = Vec::new();
    if folder.join("index.html").is_file() {
        read_folder(folder, "", &mut files)?;
        files.sort();
    }
    Ok(files)
}

fn read_folder(folder: &Path, prefix: &str, files: &mut Vec<(String, Vec<u8>)>) -> Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            read_folder(&entry.path(), &format!("{name}/"), files)?;
        } else if !name.ends_with(".map") {
            files.push((name, std::fs::read(entry.path())?));
        }
    }
    Ok(())
}

fn own_pages() -> Result<Vec<(String, Vec<u8>)>> {
    println!("cargo::rerun-if-changed={OWN_PAGES}");
    let mut files = Vec::new();
    read_folder(Path::new(OWN_PAGES), "", &mut files)?;
    files.sort();
    Ok(files)
}

/// The tests compare it with what the code says.
fn openapi_document() -> Result<Vec<(String, Vec<u8>)>> {
    println!("cargo::rerun-if-changed={OPENAPI}");
    let content = std::fs::read(OPENAPI)?;
    let has_flights = std::env::var_os("CARGO_FEATURE_FLIGHTS").is_some();
    Ok(vec![("openapi.json".to_owned(), if has_flights { content } else { without_flights(&content)? })])
}

/// The document of a server that is built without the flight search: without its paths and the components that only they use.
fn without_flights(content: &[u8]) -> Result<Vec<u8>> {
    let mut document: Value = serde_json::from_slice(content)?;
    let is_of_flights = |path: &Value| path.as_object().is_some_and(|methods| methods.values().any(|one| one["tags"][0] == "flights"));
    if let Some(paths) = document["paths"].as_object_mut() {
        paths.retain(|_, path| !is_of_flights(path));
    }
    for kind in ["schemas", "responses"] {
        if let Some(components) = document["components"][kind].as_object_mut() {
            components.retain(|name, _| !name.starts_with("FlightSearch"));
        }
    }
    Ok(serde_json::to_string_pretty(&document)?.into_bytes())
}

fn swagger_ui_files() -> Result<Vec<(String, Vec<u8>)>> {
    let mut archive = zip::ZipArchive::new(Cursor::new(utoipa_swagger_ui_vendored::SWAGGER_UI_VENDORED)).map_err(Error::other)?;
    let mut files = Vec::new();
    for wanted in SWAGGER_UI {
        let mut content = Vec::new();
        for number in 0..archive.len() {
            let mut file = archive.by_index(number).map_err(Error::other)?;
            if file.name().map_err(Error::other)?.ends_with(&format!("/dist/{wanted}")) {
                file.read_to_end(&mut content)?;
            }
        }
        if content.is_empty() {
            return Err(Error::other(format!("Swagger UI has no {wanted}")));
        }
        // A map would be asked for at an address that does not exist.
        let text = String::from_utf8(content).map_err(Error::other)?;
        let lines: Vec<&str> = text.lines().filter(|line| !line.contains("# sourceMappingURL=")).collect();
        files.push((wanted.to_owned(), lines.join("\n").into_bytes()));
    }
    Ok(files)
}

/// Writes a constant with these files, and the files themselves into the folder of the build.
fn write_list(list: &mut String, out: &Path, name: &str, files: &[(String, Vec<u8>)]) -> Result<()> {
    let mut write = |text: String| list.write_str(&text).map_err(Error::other);
    write(format!("static {name}: [EmbeddedFile; {}] = [\n", files.len()))?;
    for (number, (path, content)) in files.iter().enumerate() {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(content)?;
        let gzip = encoder.finish()?;
        let compressed = gzip.len() < content.len();
        let file = out.join(format!("{name}-{number}"));
        std::fs::write(&file, if compressed { &gzip } else { content })?;
        let digest: String = Sha256::digest(content).iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        write(format!("    EmbeddedFile::new({path:?}, include_bytes!({file:?}), {compressed}, {digest:?}),\n"))?;
    }
    write("];\n".to_owned())
}

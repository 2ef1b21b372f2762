//! Names the commit of the checkout in `WERKRUF_COMMIT`, unless the build sets that variable itself, and lists the files that are part of the
//! program: the console, if `make console` has built it, and Swagger UI.

use std::fmt::Write as _;
use std::io::{Cursor, Error, Read, Result, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use flate2::Compression;
use flate2::write::GzEncoder;
use sha2::{Digest, Sha256};

/// Where Vite writes the console, from the folder of this crate.
const CONSOLE: &str = "../../web/dist";
/// The page of a program without the console, and the page of the API reference.
const OWN_PAGES: &str = "src/api/pages";
/// What the API reference needs of Swagger UI.
const SWAGGER_UI: [&str; 2] = ["swagger-ui-bundle.js", "swagger-ui.css"];

fn main() -> Result<()> {
    name_commit();
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or_else(|| Error::other("cargo names no OUT_DIR"))?);
    let mut list = String::new();
    write_list(&mut list, &out, "CONSOLE", &console_files()?)?;
    write_list(&mut list, &out, "OWN_PAGES", &own_pages()?)?;
    write_list(&mut list, &out, "SWAGGER_UI", &swagger_ui_files()?)?;
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

/// The output of a git command; nothing without git or outside a checkout.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
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

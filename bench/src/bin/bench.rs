//! `bench [--rounds N] [--seconds N] [--chats N] [--json]`: Werkruf beside the floor, in one run, as a ratio.
//!
//! Both servers, the fake model and the load share this machine, so absolute figures move with its noise; the ratio
//! of one round barely does. Everything runs on loopback with a database file in a temporary folder.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use werkruf_bench::load::{Child, Comparison, Load, Target};

/// CPU per turn at most this many times the floor's.
const BAR: f64 = 1.5;

struct Options {
    rounds: usize,
    seconds: u64,
    chats: usize,
    json: bool,
}

fn options() -> Option<Options> {
    let mut options = Options { rounds: 5, seconds: 4, chats: 16, json: false };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut number = || arguments.next().and_then(|text| text.parse::<u64>().ok());
        match argument.as_str() {
            "--rounds" => options.rounds = usize::try_from(number()?).ok()?.max(1),
            "--seconds" => options.seconds = number()?.max(1),
            "--chats" => options.chats = usize::try_from(number()?).ok()?.max(1),
            "--json" => options.json = true,
            _ => return None,
        }
    }
    Some(options)
}

#[tokio::main]
#[expect(clippy::print_stderr, clippy::print_stdout, reason = "a command line program talks to its terminal")]
async fn main() -> ExitCode {
    let Some(options) = options() else {
        eprintln!("usage: bench [--rounds N] [--seconds N] [--chats N] [--json]");
        return ExitCode::from(2);
    };
    match run(&options).await {
        Ok(comparison) if options.json => println!("{}", comparison.json()),
        Ok(comparison) => {
            println!("{}", comparison.lines());
            let verdict = if comparison.cpu_ratio() <= BAR { "within" } else { "OVER" };
            println!("CPU per one-call turn: {:.2} times the floor ({verdict} the bar of {BAR})", comparison.cpu_ratio());
        }
        Err(error) => {
            eprintln!("bench: {error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

#[expect(clippy::print_stderr, clippy::disallowed_methods, reason = "progress for the person who waits; the load has a client of its own")]
async fn run(options: &Options) -> Result<Comparison, String> {
    werkruf_bench::install_tls();
    let bin = bin_folder()?;
    let folder = std::env::temp_dir().join(format!("werkruf-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
    let model = Child::start(&bin.join("fake-model"), &[], &[])?;
    let floor = Child::start(&bin.join("floor"), &[&model.url, &path(&folder, "floor.db")], &[])?;
    let werkruf = start_werkruf(&bin, &folder, &model.url)?;
    let client = reqwest::Client::builder().no_proxy().pool_max_idle_per_host(1024).build().map_err(|error| error.to_string())?;
    let load = Load { chats: options.chats, warm_up: Duration::from_secs(1), window: Duration::from_secs(options.seconds), shape: "" };
    let floor_target = Target { url: floor.url.clone(), key: None, pid: floor.pid() };
    let werkruf_target = Target { url: werkruf.url.clone(), key: Some(KEY.to_owned()), pid: werkruf.pid() };
    let mut comparison = Comparison { name: format!("one-call turn, {} chats", options.chats), rounds: Vec::new() };
    for round in 1..=options.rounds {
        eprintln!("round {round} of {}", options.rounds);
        let below = load.run(&floor_target, &client).await.map_err(|error| format!("floor: {error}"))?;
        let ours = load.run(&werkruf_target, &client).await.map_err(|error| format!("werkruf: {error}"))?;
        comparison.rounds.push((below, ours));
    }
    drop((floor, werkruf, model));
    std::fs::remove_dir_all(&folder).map_err(|error| error.to_string())?;
    Ok(comparison)
}

const KEY: &str = "bench-admin-key-0123456789";

fn start_werkruf(bin: &Path, folder: &Path, model_url: &str) -> Result<Child, String> {
    let database = format!("sqlite:{}", path(folder, "werkruf.db"));
    let environment = [
        ("OPENAI_BASE_URL", model_url),
        ("OPENAI_MODEL", "fixed"),
        ("WERKRUF_ADMIN_KEY", KEY),
        ("WERKRUF_TEST_TOOLS", "1"),
        ("WERKRUF_SAMPLE_DATA", "on"),
        // One person cannot send hundreds of messages a second; everything else is as shipped.
        ("WERKRUF_LIMIT_TURNS_PER_MINUTE_USER", "0"),
    ];
    Child::start(&bin.join("werkruf"), &["serve", "--listen", "127.0.0.1:0", "--database", &database], &environment)
}

fn path(folder: &Path, name: &str) -> String {
    folder.join(name).to_string_lossy().into_owned()
}

/// The other programs lie beside this one.
fn bin_folder() -> Result<PathBuf, String> {
    let this = std::env::current_exe().map_err(|error| error.to_string())?;
    this.parent().map(Path::to_owned).ok_or_else(|| "no folder".to_owned())
}

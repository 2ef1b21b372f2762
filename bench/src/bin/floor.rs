//! `floor MODEL_URL FILE`: the floor as a process of its own; prints its address.

use std::path::Path;
use std::process::ExitCode;

use axum::serve::ListenerExt;
use werkruf_bench::floor::Floor;

#[tokio::main]
#[expect(clippy::print_stderr, reason = "a command line program talks to its terminal")]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [model_url, file] = arguments.as_slice() else {
        eprintln!("usage: floor MODEL_URL FILE");
        return ExitCode::from(2);
    };
    match serve(model_url, Path::new(file)).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("floor: {error}");
            ExitCode::FAILURE
        }
    }
}

#[expect(clippy::print_stdout, reason = "the line tells the benchmark where to connect")]
async fn serve(model_url: &str, file: &Path) -> Result<(), Box<dyn std::error::Error>> {
    werkruf_bench::install_tls();
    let floor = Floor::new(model_url, file)?;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("listening on http://{}", listener.local_addr()?);
    // Without `nodelay` every small frame waits for the delayed acknowledgement of the client, 40 ms each.
    let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
    axum::serve(listener, floor.router()).await?;
    Ok(())
}

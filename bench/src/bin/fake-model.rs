//! `fake-model [--port N]`: the benchmark's model as a process of its own.

use std::net::SocketAddr;
use std::process::ExitCode;

use axum::serve::ListenerExt;
use tokio::net::TcpListener;
use werkruf_bench::fake_model::fixed_router;

#[tokio::main]
#[expect(clippy::print_stderr, reason = "a command line program talks to its terminal")]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let port = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => Ok(0),
        ["--port", port] => port.parse::<u16>(),
        _ => {
            eprintln!("usage: fake-model [--port N]");
            return ExitCode::from(2);
        }
    };
    let Ok(port) = port else {
        eprintln!("--port takes a number from 0 to 65535");
        return ExitCode::from(2);
    };
    match serve(port).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fake-model: {error}");
            ExitCode::FAILURE
        }
    }
}

#[expect(clippy::print_stdout, reason = "the line tells scripts where to connect")]
async fn serve(port: u16) -> std::io::Result<()> {
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], port))).await?;
    println!("listening on http://{}/v1", listener.local_addr()?);
    axum::serve(listener.tap_io(|stream| drop(stream.set_nodelay(true))), fixed_router()).await
}

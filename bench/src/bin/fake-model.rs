//! `fake-model [--port N] [--latency-ms N]`: the benchmark's model as a process of its own.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use axum::serve::ListenerExt;
use tokio::net::TcpListener;
use werkruf_bench::fake_model::fixed_router;

fn options() -> Option<(u16, Duration)> {
    let (mut port, mut latency) = (0, Duration::ZERO);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let value = arguments.next()?;
        match argument.as_str() {
            "--port" => port = value.parse().ok()?,
            "--latency-ms" => latency = Duration::from_millis(value.parse().ok()?),
            _ => return None,
        }
    }
    Some((port, latency))
}

#[tokio::main]
#[expect(clippy::print_stderr, reason = "a command line program talks to its terminal")]
async fn main() -> ExitCode {
    let Some((port, latency)) = options() else {
        eprintln!("usage: fake-model [--port N] [--latency-ms N]");
        return ExitCode::from(2);
    };
    match serve(port, latency).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fake-model: {error}");
            ExitCode::FAILURE
        }
    }
}

#[expect(clippy::print_stdout, reason = "the line tells scripts where to connect")]
async fn serve(port: u16, latency: Duration) -> std::io::Result<()> {
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], port))).await?;
    println!("listening on http://{}/v1", listener.local_addr()?);
    axum::serve(listener.tap_io(|stream| drop(stream.set_nodelay(true))), fixed_router(latency)).await
}

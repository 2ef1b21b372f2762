//! Memory, processor time and open files of this process, by the names that Prometheus' own libraries use. Linux only: elsewhere they are missing.

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

/// Reads `/proc/self` at each scrape.
#[derive(Debug, Default)]
pub(super) struct Process {}

/// The facts of one moment.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Facts {
    cpu_seconds: f64,
    resident_bytes: i64,
    virtual_bytes: i64,
    threads: i64,
    start_seconds: f64,
}

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let mut gauge = |name: &str, help: &str, value: i64| {
            let gauge = ConstGauge::new(value);
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)
        };
        let Some(facts) = facts() else { return Ok(()) };
        gauge("process_resident_memory_bytes", "Memory that is in use", facts.resident_bytes)?;
        gauge("process_virtual_memory_bytes", "Addresses that are reserved", facts.virtual_bytes)?;
        gauge("process_threads", "Threads", facts.threads)?;
        if let Ok(files) = std::fs::read_dir("/proc/self/fd") {
            gauge("process_open_fds", "Open files and sockets", i64::try_from(files.count()).unwrap_or(i64::MAX))?;
        }
        if let Some(limit) = rustix::process::getrlimit(rustix::process::Resource::Nofile).current {
            gauge("process_max_fds", "Limit of open files and sockets", i64::try_from(limit).unwrap_or(i64::MAX))?;
        }
        let start = ConstGauge::new(facts.start_seconds);
        let help = "When the process started, in Unix time";
        start.encode(encoder.encode_descriptor("process_start_time_seconds", help, None, start.metric_type())?)?;
        let cpu = ConstCounter::new(facts.cpu_seconds);
        let help = "Processor time that was used";
        cpu.encode(encoder.encode_descriptor("process_cpu_seconds", help, None, cpu.metric_type())?)
    }
}

fn facts() -> Option<Facts> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let boot = std::fs::read_to_string("/proc/stat").ok()?;
    let ticks = f64::from(u32::try_from(rustix::param::clock_ticks_per_second()).ok()?);
    parse(&stat, &boot, ticks, i64::try_from(rustix::param::page_size()).ok()?)
}

/// The name of the program is in brackets and may have spaces, so the fields are counted from its end.
fn parse(stat: &str, boot: &str, ticks: f64, page: i64) -> Option<Facts> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<i64>().ok();
    let seconds = |at: usize| fields.get(at)?.parse::<f64>().ok().map(|value| value / ticks);
    let booted: f64 = boot.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    Some(Facts {
        cpu_seconds: seconds(11)? + seconds(12)?,
        threads: number(17)?,
        start_seconds: booted + seconds(19)?,
        virtual_bytes: number(20)?,
        resident_bytes: number(21)?.checked_mul(page)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_spaces_and_brackets_moves_no_field() {
        let stat = "42 (my) (prog) S 1 42 42 0 -1 4194304 9 0 0 0 250 50 0 0 20 0 7 0 1000 4096000 300 18446744073709551615 0";
        let facts = parse(stat, "cpu 1 2\nbtime 1700000000\n", 100.0, 4096).unwrap();
        let expected =
            Facts { cpu_seconds: 3.0, resident_bytes: 300 * 4096, virtual_bytes: 4_096_000, threads: 7, start_seconds: 1_700_000_010.0 };
        assert_eq!(facts, expected);
    }
}

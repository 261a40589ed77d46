//! The machine's CPUs, and the share of each rank.

use rustix::thread::CpuSet;
use std::collections::BTreeSet;
use std::path::Path;

/// One logical CPU. Ordered so that neighbours share as much of the machine as possible.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Cpu {
    /// NUMA node (0 where the system reports none).
    pub(crate) node: usize,
    /// Socket.
    pub(crate) package: usize,
    /// Core within the socket; hardware threads of a core have the same.
    pub(crate) core: usize,
    /// The system's number.
    pub(crate) id: usize,
}

impl Cpu {
    /// CPU `id` as /sys describes it; a missing part counts as 0, a missing core as `id`.
    pub(crate) fn describe(id: usize) -> Self {
        let directory = format!("/sys/devices/system/cpu/cpu{id}");
        let read = |name: &str| {
            std::fs::read_to_string(format!("{directory}/topology/{name}")).ok()?.trim().parse::<usize>().ok()
        };
        Self {
            node: node_of(Path::new(&directory)).unwrap_or(0),
            package: read("physical_package_id").unwrap_or(0),
            core: read("core_id").unwrap_or(id),
            id,
        }
    }
}

/// A CPU's directory holds a link `nodeK`.
fn node_of(directory: &Path) -> Option<usize> {
    let entries = std::fs::read_dir(directory).ok()?;
    entries.flatten().find_map(|entry| entry.file_name().to_str()?.strip_prefix("node")?.parse().ok())
}

/// The CPUs of this thread's affinity mask, neighbours together.
pub(crate) fn usable() -> rustix::io::Result<Vec<Cpu>> {
    let mask = rustix::thread::sched_getaffinity(None)?;
    let mut cpus: Vec<Cpu> = (0..CpuSet::MAX_CPU).filter(|&id| mask.is_set(id)).map(Cpu::describe).collect();
    cpus.sort_unstable();
    Ok(cpus)
}

/// The CPUs of rank `rank` of `size`: an even, contiguous part of `cpus`; `None` if there are more ranks
/// than CPUs.
pub(crate) fn share(cpus: &[Cpu], rank: usize, size: usize) -> Option<&[Cpu]> {
    if cpus.len() < size {
        return None;
    }
    cpus.get(rank * cpus.len() / size..(rank + 1) * cpus.len() / size)
}

/// Parses a list in the kernel's format: `0-3,8`. `None` if the format is wrong.
pub(crate) fn parse_list(text: &str) -> Option<BTreeSet<usize>> {
    let mut numbers = BTreeSet::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        numbers.extend(first.parse::<usize>().ok()?..=last.parse().ok()?);
    }
    Some(numbers)
}

/// Formats a list as the kernel does: `0-3,8`.
pub(crate) fn format_list(numbers: impl IntoIterator<Item = usize>) -> String {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for number in numbers.into_iter().collect::<BTreeSet<_>>() {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => runs.push((number, number)),
        }
    }
    let text = |(first, last): (usize, usize)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    runs.into_iter().map(text).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpus(count: usize) -> Vec<Cpu> {
        (0..count).map(|id| Cpu { node: 0, package: 0, core: id, id }).collect()
    }

    #[test]
    fn shares_are_even_disjoint_and_complete() {
        for (count, size) in [(8, 1), (8, 3), (5, 5), (7, 2)] {
            let all = cpus(count);
            let shares: Vec<_> = (0..size).map(|rank| share(&all, rank, size).unwrap()).collect();
            assert_eq!(shares.concat(), all);
            let sizes = shares.iter().map(|share| share.len());
            assert!(sizes.clone().max().unwrap() - sizes.min().unwrap() <= 1);
        }
    }

    #[test]
    fn more_ranks_than_cpus_are_not_bound() {
        assert_eq!(share(&cpus(2), 0, 3), None);
    }

    #[test]
    fn hardware_threads_of_a_core_are_neighbours() {
        let thread = |id| Cpu { node: 0, package: 0, core: id % 2, id };
        let mut all: Vec<Cpu> = (0..4).map(thread).collect();
        all.sort_unstable();
        assert_eq!(share(&all, 0, 2).unwrap().iter().map(|cpu| cpu.id).collect::<Vec<_>>(), [0, 2]);
    }

    #[test]
    fn lists_are_read_and_written_as_the_kernel_does() {
        assert_eq!(parse_list("0-2,8\n"), Some(BTreeSet::from([0, 1, 2, 8])));
        assert_eq!(parse_list(""), Some(BTreeSet::new()));
        assert_eq!(parse_list("a-3"), None);
        assert_eq!(format_list([8, 0, 2, 1]), "0-2,8");
        assert_eq!(format_list([]), "");
    }
}

//! Processes that are killed at random moments while they build, wait, or keep an entry.

use super::{Getter, names};
use halocline_program::cache::{Cache, Filter};
use std::time::{Duration, Instant};

/// Random numbers (xorshift of 64 bits).
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

#[test]
fn killed_processes_leave_nothing_that_is_loaded_or_that_blocks() {
    let variable = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let kills = variable("HALOCLINE_SEEDS").map_or(200, |seeds| seeds.min(200));
    let mut random =
        Random(variable("HALOCLINE_SEED").unwrap_or(1).max(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path().join("cache");
    // What a build takes here, so that the kills meet all of it.
    let begin = Instant::now();
    Getter::new(scratch.path(), &folder, 1).start().end().unwrap();
    let whole = begin.elapsed();
    let (mut killed, mut number, mut longest) = (0, 1, Duration::ZERO);
    while killed < kills {
        number += 1;
        let mut getters: Vec<_> =
            (0..3).map(|_| Getter::new(scratch.path(), &folder, number).start()).collect();
        for victim in [0, 1] {
            let delay = whole.mul_f64(random.below(1000) as f64 / 800.0);
            let begin = Instant::now();
            while begin.elapsed() < delay {
                std::thread::yield_now();
            }
            getters[victim].child.kill().unwrap();
            let status = getters[victim].child.wait().unwrap();
            killed += u64::from(!status.success());
        }
        let begin = Instant::now();
        getters.pop().unwrap().end().unwrap();
        longest = longest.max(begin.elapsed());
    }
    let cache = Cache::at(&folder);
    let contents = cache.verify().unwrap();
    assert_eq!((contents.entries.len() as u32, &contents.damaged[..]), (number, &[][..]));
    // Compilers of killed builders end by themselves, and may have written after the last sweep.
    super::until("all is swept", || {
        cache.clear(&Filter::all().program("no such program")).unwrap();
        ["builds", "claims", "trash"].iter().all(|name| names(&folder.join(name)).is_empty())
    });
    println!("{killed} processes were killed before they ended; the longest wait took {longest:?}");
}

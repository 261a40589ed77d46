//! Memory of messages, used again: fresh memory of the system costs a page fault for every page, each time, which is
//! more than moving the bytes.

use std::sync::Mutex;

/// From so many bytes on memory is kept; below, the allocator is as fast.
const LEAST: usize = 1 << 12;
/// How many buffers are kept, and how many bytes in all.
const MOST: usize = 32;
const BYTES: usize = 1 << 28;

static KEPT: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

/// An empty buffer with room for so many bytes. Never waits.
pub fn take(bytes: usize) -> Vec<u8> {
    // Neither too small nor so large that another one would miss it.
    let fits = |kept: &Vec<u8>| (bytes..=bytes.saturating_mul(4)).contains(&kept.capacity());
    let found = || {
        let mut kept = KEPT.try_lock().ok()?;
        let at = kept.iter().rposition(fits)?;
        Some(kept.swap_remove(at))
    };
    let kept = if bytes < LEAST { None } else { found() };
    kept.unwrap_or_else(|| Vec::with_capacity(bytes))
}

/// Gives back what [`take`] gave, or any other buffer. Never waits.
pub fn put(mut buffer: Vec<u8>) {
    if buffer.capacity() < LEAST {
        return;
    }
    buffer.clear();
    if let Ok(mut kept) = KEPT.try_lock() {
        keep(&mut kept, buffer);
    }
}

/// Where there are enough, the smallest one is given up for a larger one: it costs the least to make again.
fn keep(kept: &mut Vec<Vec<u8>>, buffer: Vec<u8>) {
    if kept.len() == MOST {
        let smallest = kept.iter().enumerate().min_by_key(|(_, kept)| kept.capacity());
        match smallest.filter(|(_, kept)| kept.capacity() < buffer.capacity()).map(|(at, _)| at) {
            Some(at) => drop(kept.swap_remove(at)),
            None => return,
        }
    }
    let bytes: usize = kept.iter().map(Vec::capacity).sum();
    if bytes.saturating_add(buffer.capacity()) <= BYTES {
        kept.push(buffer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_buffers_do_not_keep_large_ones_away() {
        let mut kept = Vec::new();
        (0..100).for_each(|number| keep(&mut kept, Vec::with_capacity(LEAST + number % 7)));
        assert_eq!(kept.len(), MOST);
        (0..100).for_each(|_| keep(&mut kept, Vec::with_capacity(1 << 20)));
        assert_eq!(kept.len(), MOST);
        assert!(kept.iter().all(|kept| kept.capacity() >= 1 << 20));
        keep(&mut kept, Vec::with_capacity(LEAST));
        assert!(kept.iter().all(|kept| kept.capacity() >= 1 << 20));
    }

    #[test]
    fn buffers_come_back_and_are_not_kept_without_limit() {
        // A size that no other test uses.
        let size = 54_321;
        let mut first = take(size);
        first.resize(size, 7);
        let address = first.as_ptr();
        put(first);
        let again = take(size - 1000);
        assert!(again.is_empty() && again.as_ptr() == address);
        assert!(take(usize::from(u16::MAX) * 9).capacity() >= 9 * usize::from(u16::MAX));
        (0..100).for_each(|_| put(Vec::with_capacity(BYTES / 4)));
        let kept = KEPT.lock().expect("no test panics while it holds it");
        assert!(kept.len() <= MOST && kept.iter().map(Vec::capacity).sum::<usize>() <= BYTES);
    }
}

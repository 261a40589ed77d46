//! A pool of message buffers: fresh memory costs a page fault for every page, which takes longer than moving
//! the bytes.

use crate::error::CommError;
use std::sync::Mutex;

/// Smaller buffers are not kept: the allocator is as fast.
const LEAST: usize = 1 << 12;
/// The most buffers in the pool, and the most bytes in all.
const MOST: usize = 32;
const BYTES: usize = 1 << 28;

static KEPT: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

/// An empty buffer with a capacity of at least so many bytes. Never waits.
pub fn take(bytes: usize) -> Vec<u8> {
    kept(bytes).unwrap_or_else(|| Vec::with_capacity(bytes))
}

/// The same, for sizes that a program chooses: an error if there is no memory for it.
pub fn try_take(bytes: usize) -> Result<Vec<u8>, CommError> {
    if let Some(kept) = kept(bytes) {
        return Ok(kept);
    }
    let mut fresh = Vec::new();
    fresh.try_reserve_exact(bytes).map_err(|_| CommError::OutOfMemory(bytes))?;
    Ok(fresh)
}

/// A buffer of the pool with such a capacity.
fn kept(bytes: usize) -> Option<Vec<u8>> {
    // A much larger buffer is left for larger messages.
    let fits = |kept: &Vec<u8>| (bytes..=bytes.saturating_mul(4)).contains(&kept.capacity());
    if bytes < LEAST {
        return None;
    }
    let mut kept = KEPT.try_lock().ok()?;
    let at = kept.iter().rposition(fits)?;
    Some(kept.swap_remove(at))
}

/// Puts a buffer into the pool. Never waits.
pub fn put(mut buffer: Vec<u8>) {
    if buffer.capacity() < LEAST {
        return;
    }
    buffer.clear();
    if let Ok(mut kept) = KEPT.try_lock() {
        keep(&mut kept, buffer);
    }
}

/// In a full pool a larger buffer replaces the smallest one, which is the cheapest to allocate again.
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
    fn large_buffers_replace_small_ones() {
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
    fn a_size_without_memory_is_refused() {
        let bytes = isize::MAX as usize;
        assert!(matches!(try_take(bytes), Err(CommError::OutOfMemory(found)) if found == bytes));
    }

    #[test]
    fn buffers_are_reused_and_the_pool_is_limited() {
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

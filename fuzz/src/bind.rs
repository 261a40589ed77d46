//! Two ranks bind and exchange by every path; one message of rank 1 is replaced.

use halocline::{
    Array, BindOptions, Communicator, Decomposed, Error, Halo, HaloExchange, LinkChoice, RegularGrid,
};
use halocline_conformance::tampered::tampered;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const CHOICES: [LinkChoice; 4] =
    [LinkChoice::Push, LinkChoice::Pull, LinkChoice::Mailbox, LinkChoice::Message];

/// The path, the number of a message of rank 1, and its new content.
pub fn bind(bytes: &[u8]) {
    let Some((&[way, victim], content)) = bytes.split_first_chunk() else { return };
    let content = content.to_vec();
    play(CHOICES[usize::from(way) % CHOICES.len()], move |at, message| {
        if at == usize::from(victim) {
            message.clone_from(&content);
        }
    });
}

/// All messages, unchanged.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for (way, choice) in (0u8..).zip(CHOICES) {
        let sent = Arc::new(Mutex::new(Vec::new()));
        let theirs = Arc::clone(&sent);
        play(choice, move |at, message| {
            let seed = [&[way, at as u8][..], message].concat();
            theirs.lock().expect("no panic").push(seed);
        });
        seeds.append(&mut sent.lock().expect("no panic"));
    }
    seeds
}

fn play(link: LinkChoice, tamper: impl Fn(usize, &mut Vec<u8>) + Send + Sync + 'static) {
    let mut pair = Communicator::threads(2);
    let (second, first) = (pair.pop().expect("two ranks"), pair.pop().expect("two ranks"));
    let sent = AtomicUsize::new(0);
    let second = tampered(second, move |message| {
        tamper(sent.fetch_add(1, Ordering::Relaxed), message.payload);
        Ok(())
    });
    let other = std::thread::spawn(move || exchange(second, link));
    // An error or not: the change may not matter.
    let _ = exchange(first, link);
    let _ = other.join().expect("no panic");
}

fn exchange(comm: Communicator, link: LinkChoice) -> Result<(), Error> {
    let deadline = Some(Duration::from_millis(100));
    let options = BindOptions::default().link(link).deadline(deadline);
    let comm = comm.with_deadline(deadline);
    let pattern =
        RegularGrid::new([8, 3]).periodic([true, false]).decompose(2)?.pattern(&comm, Halo::uniform(1))?;
    let (_, shape) = &pattern.plan().domains[0];
    let (a, b) =
        (Array::<f64>::zeros(&comm, &shape.extents())?, Array::<u32>::zeros(&comm, &shape.extents())?);
    let halo = HaloExchange::bind_with(&comm, ((&pattern, &a), (&pattern, &b)), &options)?;
    (0..2).try_for_each(|_| halo.exchange()?.wait())
}

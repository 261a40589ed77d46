//! Contradicting sets, and ranks that fail, leave or never come.

use super::*;
use crate::memory_resource::Limited;
use crate::{CommError, Endpoint};
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// The error names both ranks, on whichever rank it occurs.
#[test]
fn sets_that_contradict_each_other_are_found_out() {
    struct Sets(&'static [usize], &'static [usize]);
    // Sources and destinations of both ranks: rank 1 names nobody, or only one way.
    let cases = [
        [Sets(&[], &[1]), Sets(&[], &[])],
        [Sets(&[1], &[]), Sets(&[], &[])],
        [Sets(&[1], &[1]), Sets(&[0], &[])],
        [Sets(&[], &[1]), Sets(&[0], &[0])],
    ];
    for sets in cases {
        let errors = on_ranks(2, |comm| {
            let Sets(sources, destinations) = &sets[comm.rank()];
            let exchange = new(&comm, sources, destinations).unwrap();
            exchange.finish();
            let outcome = exchange.wait();
            drop(exchange);
            comm.barrier().unwrap();
            outcome.err()
        });
        // A rank that names nobody has nothing to wait for.
        let found: Vec<&SparseError> = errors.iter().flatten().collect();
        assert!(!found.is_empty() && (found.len() == 2 || sets[1].0.is_empty()), "{found:?}");
        let is_named = |error: &&SparseError| {
            matches!(error, SparseError::Mismatch { .. })
                || error.to_string().contains("mismatched sets: rank ")
        };
        assert!(found.iter().all(is_named), "{found:?}");
    }
}

/// A rank asks another one whose hello is late; the answer comes behind the hello, when the operation may be over there.
/// However many operations the other rank has passed over since.
#[test]
fn sets_that_contradict_each_other_are_found_out_late() {
    for is_refused in [false, true] {
        let gone_on = Barrier::new(2);
        on_ranks(2, |comm| {
            if comm.rank() == 0 {
                gone_on.wait();
                let comm = comm.with_deadline(Some(Duration::from_secs(100)));
                let exchange = new(&comm, &[1], &[1]).unwrap();
                let found = text(exchange.finish_and_wait());
                gone_on.wait();
                let expected = if is_refused {
                    "rank 1 refused: rank 1 names itself"
                } else {
                    "rank 0 names rank 1 as a source, but"
                };
                assert!(found.contains(expected), "{found}");
                return;
            }
            match is_refused {
                true => assert!(matches!(new(&comm, &[1], &[]), Err(SparseError::Itself { .. }))),
                false => new(&comm, &[], &[]).unwrap().finish_and_wait().unwrap(),
            }
            for _ in 0..1100 {
                new(&comm, &[], &[]).unwrap().finish_and_wait().unwrap();
            }
            gone_on.wait();
            gone_on.wait();
        });
    }
}

/// An operation is over once it has completed or failed, also if the program keeps it.
#[test]
fn a_rank_that_keeps_its_operation_answers_those_that_name_it() {
    for fails in [false, true] {
        let is_over = Barrier::new(2);
        on_ranks(3, |comm| match comm.rank() {
            0 => {
                is_over.wait();
                let comm = comm.with_deadline(Some(Duration::from_secs(20)));
                let found = text(new(&comm, &[], &[1]).unwrap().finish_and_wait());
                is_over.wait();
                assert!(
                    found.starts_with("mismatched sets: rank 0 names rank 1 as a destination"),
                    "{found}"
                );
            }
            1 => {
                let kept = new(&comm, &[], &[]).unwrap();
                if !fails {
                    kept.finish_and_wait().unwrap();
                }
                while fails && kept.is_complete().is_ok() {
                    std::thread::yield_now();
                }
                is_over.wait();
                is_over.wait();
                assert_eq!(kept.is_complete().is_err(), fails);
            }
            _ => {
                let ended = new(&comm, &[], if fails { &[1] } else { &[] }).unwrap().finish_and_wait();
                assert_eq!(ended.is_err(), fails);
            }
        });
    }
}

#[test]
fn an_answer_behind_the_hello_contradicts_nothing() {
    on_ranks(2, |comm| {
        let other = [1 - comm.rank()];
        let exchange = SparseAlltoall::new(&comm, &other, &other, host(&comm)).unwrap();
        exchange.insert(other[0], packet(comm.rank(), other[0], 1)).unwrap();
        let tag = exchange.shared.tag.control();
        comm.send(other[0], tag, control::Control::Over.encode()).unwrap();
        comm.barrier().unwrap();
        exchange.finish();
        exchange.wait().unwrap();
        assert_eq!(exchange.extract(other[0]).unwrap().len(), 1);
        comm.barrier().unwrap();
    });
}

#[test]
fn a_rank_that_never_comes_is_named_by_the_deadline() {
    let barrier = Barrier::new(3);
    on_ranks(3, |comm| {
        if comm.rank() != 2 {
            let comm = comm.with_deadline(Some(Duration::from_millis(150)));
            let other = 1 - comm.rank();
            let exchange = new(&comm, &[other, 2], &[other, 2]).unwrap();
            exchange.finish();
            let error = exchange.wait().unwrap_err();
            let text = error.to_string();
            assert!(text.contains("for rank 2 to begin the operation"), "{text}");
            assert!(matches!(error, SparseError::Deadline { .. } | SparseError::Aborted { .. }), "{text}");
            assert!(text.starts_with("rank "), "{text}");
            // The failure is final.
            assert_eq!(exchange.wait().unwrap_err().to_string(), text);
            assert_eq!(exchange.insert(other, Packet::default()).unwrap_err().to_string(), text);
        }
        barrier.wait();
    });
}

#[test]
fn a_rank_that_leaves_before_its_last_packet_is_named() {
    let errors = on_ranks(3, |comm| {
        if comm.rank() == 2 {
            return None;
        }
        let exchange = new(&comm, &[2], &[2]).unwrap();
        exchange.finish();
        exchange.wait().err()
    });
    for error in &errors[..2] {
        assert!(matches!(error, Some(SparseError::Comm(CommError::Left { rank: 2, .. }))), "{error:?}");
    }
}

#[test]
fn an_operation_that_is_dropped_early_ends_the_others() {
    on_ranks(3, |comm| {
        let others: Vec<usize> = (0..3).filter(|rank| *rank != comm.rank()).collect();
        let exchange = new(&comm, &others, &others).unwrap();
        // Another rank may have dropped its own already.
        let is_early = exchange.insert(others[0], packet(0, 1, 1)).is_err();
        assert!(!is_early || comm.rank() != 1);
        if comm.rank() == 1 {
            drop(exchange);
        } else {
            exchange.finish();
            let why = "the operation was dropped before it was finished; finish it on all ranks, also without packets";
            assert_eq!(text(exchange.wait()), format!("rank 1 has given up the operation: {why}"));
        }
        comm.barrier().unwrap();
    });
}

#[test]
fn a_finished_operation_delivers_its_packets_after_its_drop() {
    on_ranks(2, |comm| {
        let other = 1 - comm.rank();
        let sources: &[usize] = if comm.rank() == 1 { &[0] } else { &[] };
        let destinations: &[usize] = if comm.rank() == 0 { &[1] } else { &[] };
        let exchange = new(&comm, sources, destinations).unwrap();
        if comm.rank() == 0 {
            (0..9).for_each(|number| exchange.insert(1, packet(0, 1, number)).unwrap());
            exchange.finish();
            drop(exchange);
            drop(comm);
        } else {
            exchange.finish();
            exchange.wait().unwrap();
            assert_received(&exchange.extract(other).unwrap(), 0, 1, 9);
        }
    });
}

/// The packets that are too large are mapped memory: nothing but the error ends them.
#[test]
fn a_limit_below_a_payload_fails_all_ranks_and_frees_all_memory() {
    on_ranks(3, |comm| {
        let others: Vec<usize> = (0..3).filter(|rank| *rank != comm.rank()).collect();
        let memory = HostMemory::of(&comm);
        let bytes = if comm.rank() == 0 { 100_000 } else { usize::MAX };
        let limited = Limited::new(Arc::new(memory.clone()), bytes);
        let exchange = SparseAlltoall::new(&comm, &others, &others, Arc::new(limited.clone())).unwrap();
        for &to in &others {
            let packet = Packet::new(Vec::new(), Some(memory.allocate(200_000).unwrap()));
            // Another rank may have failed already.
            let is_early = exchange.insert(to, packet).is_err();
            assert!(!is_early || exchange.is_complete().is_err());
        }
        exchange.finish();
        let text = text(exchange.wait());
        let why = "200000 bytes of host memory were asked for, and 0 of at most 100000 are in use";
        assert!(text.contains(why), "{text}");
        drop(exchange);
        // The progress threads end what is in flight.
        let begun = Instant::now();
        while memory.statistics().in_use + limited.statistics().in_use > 0 {
            assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", memory.statistics());
            std::thread::yield_now();
        }
        comm.barrier().unwrap();
    });
}

#[test]
fn a_failure_travels_to_ranks_that_do_not_name_the_culprit() {
    // A chain: 0 - 1 - 2 - 3, where 3 gives up.
    on_ranks(4, |comm| {
        let rank = comm.rank();
        let others: Vec<usize> =
            [rank.checked_sub(1), Some(rank + 1).filter(|next| *next < 4)].into_iter().flatten().collect();
        let exchange = new(&comm, &others, &others).unwrap();
        if rank == 3 {
            drop(exchange);
        } else {
            // No rank but 0 is finished, so that none can complete.
            while rank != 0 && exchange.is_complete().is_ok() {
                std::thread::yield_now();
            }
            exchange.finish();
            let text = text(exchange.wait());
            assert!(
                text.starts_with("rank 3 has given up the operation: the operation was dropped"),
                "{text}"
            );
        }
        comm.barrier().unwrap();
    });
}

#[test]
fn the_deadline_counts_for_a_waiting_task() {
    use std::future::Future;
    use std::sync::mpsc::{Sender, channel};
    use std::task::{Context, Poll, Wake, Waker};
    struct Notify(Sender<()>);
    impl Wake for Notify {
        fn wake(self: Arc<Self>) {
            // The test may have ended.
            let _ = self.0.send(());
        }
    }
    let barrier = Barrier::new(2);
    on_ranks(2, |comm| {
        if comm.rank() == 0 {
            let comm = comm.with_deadline(Some(Duration::from_millis(100)));
            let exchange = new(&comm, &[1], &[1]).unwrap();
            exchange.finish();
            let (notify, woken) = channel();
            let waker = Waker::from(Arc::new(Notify(notify)));
            let mut completion = std::pin::pin!(exchange.completion());
            let mut poll = || completion.as_mut().poll(&mut Context::from_waker(&waker));
            assert!(poll().is_pending());
            woken.recv_timeout(Duration::from_secs(60)).unwrap();
            let Poll::Ready(Err(error)) = poll() else { panic!("the task was woken for nothing") };
            let text = error.to_string();
            let expected = "rank 0 has waited 100ms in a sparse all-to-all for rank 1 to begin the operation; its deadline has passed; \
                finish the operation on all ranks, or raise the deadline";
            assert_eq!(text, expected);
        }
        barrier.wait();
    });
}

#[test]
fn packets_that_nobody_asked_for_are_bounded_until_the_receiver_takes_them() {
    const PACKETS: usize = 1000;
    const BYTES: usize = 16 << 10;
    let operation = std::sync::OnceLock::new();
    let barrier = Barrier::new(2);
    on_ranks(2, |comm| {
        let memory = Arc::new(Limited::new(host(&comm), PACKETS * BYTES));
        if comm.rank() == 0 {
            let exchange = SparseAlltoall::new(&comm, &[], &[1], memory).unwrap();
            operation.set(exchange.shared.tag.operation).unwrap();
            for number in 0..PACKETS {
                let payload = vec![number as u8; BYTES];
                exchange.insert(1, Packet::new(vec![number as u8], Some(payload.into()))).unwrap();
            }
            // The progress thread may send them, in which case `is_complete` returns before it has.
            while exchange.shared.engine().outgoing[0].untaken < queues::UNTAKEN {
                exchange.is_complete().unwrap();
                std::thread::yield_now();
            }
            barrier.wait();
            return exchange.finish_and_wait().unwrap();
        }
        barrier.wait();
        comm.link().poll();
        // Each payload is a message of a tag of its own. The progress thread takes none of them before this rank begins.
        let tags = std::cell::Cell::new(0u64);
        let inbox = comm.link().inbox();
        let none = inbox.find(|tag| {
            tags.set(tags.get() + u64::from(Some(&tag.operation) == operation.get()));
            false
        });
        assert!(none.is_none());
        let most = queues::UNTAKEN / BYTES as u64 + 3;
        assert!((most / 2..=most).contains(&tags.get()), "{} payloads lie in the inbox", tags.get());
        let exchange = SparseAlltoall::new(&comm, &[0], &[], memory).unwrap();
        exchange.finish_and_wait().unwrap();
        let packets = exchange.extract(0).unwrap();
        let is_right = |(number, packet): (usize, &Packet)| {
            packet.metadata == [number as u8]
                && packet
                    .payload
                    .as_ref()
                    .and_then(Buffer::bytes)
                    .is_some_and(|bytes| bytes == [number as u8; BYTES])
        };
        assert!(packets.len() == PACKETS && packets.iter().enumerate().all(is_right));
    });
}

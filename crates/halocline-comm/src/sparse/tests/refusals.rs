//! Calls and messages that are refused.

use super::*;
use crate::Endpoint;

#[test]
fn wrong_sets_are_refused_on_all_ranks_that_name_each_other() {
    let wrong: [(&[usize], &[usize], &str); 4] = [
        (&[1], &[0], "rank 0 names itself as a destination; keep its own packets instead of sending them"),
        (&[0], &[1], "rank 0 names itself as a source; keep its own packets instead of sending them"),
        (
            &[1, 1],
            &[1],
            "rank 1 is named as a source twice; name each rank once, several packets may go to it",
        ),
        (
            &[1],
            &[2],
            "rank 2 is named as a destination, but the communicator has ranks 0 to 1; name only these",
        ),
    ];
    on_ranks(2, |comm| {
        for (sources, destinations, expected) in wrong {
            if comm.rank() == 0 {
                assert_eq!(text(new(&comm, sources, destinations)), expected);
            } else {
                let exchange = new(&comm, &[0], &[0]).unwrap();
                exchange.finish();
                assert_eq!(text(exchange.wait()), format!("rank 0 refused: {expected}"));
            }
        }
        // The communicator goes on.
        let other = 1 - comm.rank();
        let exchange = new(&comm, &[other], &[other]).unwrap();
        exchange.finish();
        exchange.wait().unwrap();
    });
}

#[test]
fn calls_out_of_turn_are_refused() {
    on_ranks(2, |comm| {
        let other = 1 - comm.rank();
        let exchange = new(&comm, &[other], &[other]).unwrap();
        assert!(matches!(exchange.wait(), Err(SparseError::NotFinished)));
        let stranger = exchange.insert(7, Packet::default());
        assert!(
            matches!(stranger, Err(SparseError::NotNamed { peer: 7, role: Role::Destination, known }) if known[..] == [other])
        );
        comm.barrier().unwrap();
        assert!(matches!(exchange.extract(other), Err(SparseError::NotComplete { .. })));
        assert!(matches!(exchange.extract(7), Err(SparseError::NotNamed { role: Role::Source, .. })));
        comm.barrier().unwrap();
        exchange.finish();
        let late = text(exchange.insert(other, Packet::default()));
        assert_eq!(
            late,
            format!(
                "a packet for rank {other} was inserted after the operation was finished; insert all packets before"
            )
        );
        exchange.wait().unwrap();
        assert!(exchange.extract(other).unwrap().is_empty());
    });
}

#[test]
fn malformed_messages_end_the_operation() {
    let forged: [(bool, &[u8], &str); 3] = [
        (false, &[1, 2], "rank 0 sent a malformed header of a packet: it ends 70 bytes too early"),
        (true, &[9, 0, 0, 0], "rank 0 sent a malformed message of a sparse all-to-all: its kind is 9"),
        (true, &[], "rank 0 sent a malformed message of a sparse all-to-all: it ends 4 bytes too early"),
    ];
    for (is_control, bytes, expected) in forged {
        on_ranks(2, |comm| {
            if comm.rank() == 0 {
                let tag = crate::packet::PacketTag {
                    operation: crate::call::Call::begin(&comm, "SparseAlltoall").operation(),
                    channel: 0,
                };
                // The round of headers, as `PacketTag` has it.
                let header = crate::Tag { operation: tag.operation, round: 0 };
                comm.send(1, if is_control { tag.control() } else { header }, bytes.to_vec()).unwrap();
            } else {
                let exchange = new(&comm, &[0], &[0]).unwrap();
                exchange.finish();
                let text = text(exchange.wait());
                assert!(text.starts_with(expected), "{text}");
            }
            comm.barrier().unwrap();
        });
    }
}

#[test]
fn a_refusal_reaches_the_ranks_that_name_the_rank_and_frees_what_they_send() {
    let errors = on_ranks(4, |comm| {
        let memory = host(&comm);
        let [sources, destinations]: [&[usize]; 2] = match comm.rank() {
            0 => [&[], &[3]],
            1 => [&[3], &[]],
            2 => [&[], &[]],
            _ => {
                // It leaves at once.
                SparseAlltoall::refuse(&comm, "no such thing");
                return String::new();
            }
        };
        let exchange = SparseAlltoall::new(&comm, sources, destinations, memory.clone()).unwrap();
        for to in destinations {
            let inserted =
                exchange.insert(*to, Packet::new(Vec::new(), Some(memory.allocate(1 << 20).unwrap())));
            // The refusal may have come before.
            assert!(matches!(inserted, Ok(()) | Err(SparseError::RefusedElsewhere { .. })));
        }
        let outcome = text(exchange.finish_and_wait());
        drop(exchange);
        assert_eq!(memory.statistics().in_use, 0);
        outcome
    });
    let refused = "rank 3 refused: no such thing";
    assert_eq!(errors, [refused, refused, "no error", ""]);
}

#[test]
fn a_refusal_fails_a_discovery_on_all_ranks_also_without_a_packet_for_the_rank() {
    let errors = on_ranks(4, |comm| {
        let outcome = match comm.rank() {
            1 => {
                SparseAlltoall::refuse_discovery(&comm, "no such thing");
                String::new()
            }
            3 => text(SparseAlltoall::discover(&comm, &[9], host(&comm))),
            _ => text(SparseAlltoall::discover(&comm, &[], host(&comm))),
        };
        // All have begun equally many.
        let other = [comm.rank() ^ 1];
        new(&comm, &other, &other).unwrap().finish_and_wait().unwrap();
        outcome
    });
    let (refused, own) = (
        "rank 1 refused: no such thing",
        "rank 9 is named as a destination, but the communicator has ranks 0 to 3; name only these",
    );
    assert_eq!(errors, [refused, "", refused, own]);
}

#[test]
fn a_rank_that_claims_to_have_taken_what_was_not_sent_is_refused() {
    on_ranks(2, |comm| {
        let other = [1 - comm.rank()];
        let exchange = new(&comm, &other, &other).unwrap();
        if comm.rank() == 1 {
            let forged = control::Control::Taken(u64::MAX).encode();
            comm.send(0, exchange.shared.tag.control(), forged).unwrap();
        } else {
            let refused = text(exchange.finish_and_wait());
            assert!(refused.contains("bytes that were taken"), "{refused}");
        }
        comm.barrier().unwrap();
    });
}

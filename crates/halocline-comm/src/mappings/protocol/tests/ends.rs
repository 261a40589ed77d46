//! Ranks that die or end.

use super::*;

const PAGE: u64 = 4096;

/// How far a mapping can have got when the importer dies.
#[test]
fn a_peer_may_die_in_every_state() {
    for state in 0..7 {
        let mut sim = Sim::new(3, LIMIT);
        let memory = sim.allocate(0, PAGE, PAGE);
        let request = sim.send(0, at(1), &memory, 8);
        // None, offered, opened there, mapped, under way, arrived, unmapping.
        let steps: [&dyn Fn(&mut Sim); 6] = [
            &|sim| while sim.carry_out(0) {},
            &|sim| assert!(sim.deliver(0, 1) && sim.carry_out(1)),
            &|sim| assert!(sim.carry_out(1) && sim.deliver(1, 0)),
            &|sim| while sim.carry_out(0) {},
            &|sim| assert!(sim.deliver(0, 1) && sim.carry_out(1)),
            &|sim| {
                assert!(sim.take(1));
                sim.settle();
                assert_eq!(sim.ranks[0].protocol.release(PAGE).map(|ids| ids.len()), Ok(1));
                while sim.carry_out(0) {}
            },
        ];
        steps[..state].iter().for_each(|step| step(&mut sim));
        sim.kill(1);
        sim.mourn(0, 1);
        sim.settle();
        let expected = if state == 6 { Answer::Done(None) } else { Answer::Gone };
        assert_eq!(sim.answer(0, request), Some(expected), "state {state}");
        assert!(sim.ranks[0].protocol.release(PAGE).is_ok(), "state {state}: nothing pins it");
        assert!(sim.ranks[0].protocol.entries.is_empty(), "state {state}");
        // It is dead for everything from now on; the others are not.
        let request = sim.map(0, at(1), &memory);
        sim.settle();
        assert_eq!(sim.answer(0, request), Some(Answer::Gone));
        sim.mapped(0, at(2), &memory);
    }
}

#[test]
fn mappings_of_a_dead_owner_are_closed_once_nothing_uses_them() {
    let mut sim = Sim::new(2, LIMIT);
    let (used, unused) = (sim.allocate(0, PAGE, PAGE), sim.allocate(0, 4 * PAGE, PAGE));
    let (_, token) = sim.mapped(0, at(1), &used);
    sim.mapped(0, at(1), &unused);
    sim.ranks[1].protocol.resolve(0, token, 0, 8).unwrap();
    sim.kill(0);
    sim.mourn(1, 0);
    sim.settle();
    assert_eq!(sim.world.open_of(0), 1);
    sim.ranks[1].protocol.end_use(token);
    sim.settle();
    assert_eq!((sim.world.open_of(0), sim.world.held()), (0, 0));
}

#[test]
fn ranks_end_in_any_order() {
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let mut sim = Sim::new(3, LIMIT);
        for owner in 0..3 {
            let memory = sim.allocate(owner, PAGE, PAGE);
            for peer in (0..3).filter(|peer| *peer != owner) {
                sim.send(owner, at(peer), &memory, 0);
                sim.mapped(owner, at(peer), &memory);
            }
        }
        sim.finish();
        sim.shut_down(&order);
    }
}

#[test]
fn a_rank_that_ends_begins_nothing_new() {
    let mut sim = Sim::new(2, LIMIT);
    let (first, second) = (sim.allocate(0, PAGE, PAGE), sim.allocate(0, 4 * PAGE, PAGE));
    sim.mapped(0, at(1), &first);
    let requests = [sim.send(0, at(1), &first, 0), sim.send(0, at(1), &second, 0)];
    while sim.carry_out(0) {}
    sim.ranks[1].protocol.close();
    sim.settle();
    assert!(sim.ranks[1].protocol.is_over() && sim.ranks[1].arrivals.is_empty());
    assert_eq!(sim.world.calls(), (2, 1, 1));
    let answers = [Answer::Done(Some(Refusal::Ending)), Answer::Refused(Refusal::Ending)];
    assert_eq!(requests.map(|request| sim.answer(0, request)), answers.map(Some));
}

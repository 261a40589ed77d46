//! Errors found by the check of a pattern, for boxes and for runs.

use halocline_plan::{
    BoxCells, Cells, DomainShape, Halo, PatternError, PatternPlan, Peer, RegularGrid, Run, Transfer,
};

/// The middle one of three ranks along a line of 12 cells, 2 wide: halo cells from both sides.
fn regular() -> PatternPlan {
    let decomposition = RegularGrid::new([12]).decompose(3).expect("a decomposition");
    decomposition.pattern_of(1, &Halo::uniform(2)).expect("a pattern")
}

/// Domains 3 and 8 on one rank. Domain 3 has 4 owned cells of 10, of which 5, 6, 9 come from rank 7
/// and 0 from domain 8.
fn runs() -> PatternPlan {
    let shape = |owned, cells| DomainShape::Unstructured { owned, cells, levels: vec![] };
    let receives = vec![transfer(20, 3, list(&[(40, 3)]), list(&[(5, 2), (9, 1)]))];
    let sends = vec![transfer(3, 20, list(&[(1, 2), (7, 1)]), list(&[(0, 3)]))];
    PatternPlan {
        domains: vec![(3, shape(4, 10)), (8, shape(2, 2))],
        peers: vec![Peer { rank: 7, sends, receives }],
        local: vec![transfer(8, 3, list(&[(1, 1)]), list(&[(0, 1)]))],
    }
}

fn transfer(from: u64, to: u64, source: Cells, target: Cells) -> Transfer {
    Transfer { from, to, source, target, map: Default::default(), is_negated: false }
}

fn list(runs: &[(u32, u32)]) -> Cells {
    Cells::Runs(runs.iter().map(|&(start, len)| Run { start, len }).collect())
}

fn line(low: i64, extent: usize) -> Cells {
    Cells::Box(BoxCells { low: vec![low], extent: vec![extent] })
}

#[track_caller]
fn refused(mut pattern: PatternPlan, spoil: impl FnOnce(&mut PatternPlan), error: PatternError, says: &str) {
    assert_eq!(pattern.check(), Ok(()));
    spoil(&mut pattern);
    let found = pattern.check().expect_err("an error");
    assert_eq!(found, error);
    assert!(found.to_string().contains(says), "{found}");
}

#[test]
fn a_domain_out_of_order_is_found() {
    refused(runs(), |p| p.domains[1].0 = 3, PatternError::DomainOrder { domain: 3 }, "domain 3");
}

#[test]
fn a_transfer_with_a_domain_that_is_not_here_is_found() {
    let missing = |from, to, missing| PatternError::UnknownDomain { from, to, missing };
    refused(regular(), |p| p.peers[0].receives[0].to = 9, missing(0, 9, 9), "needs domain 9");
    refused(regular(), |p| p.peers[1].sends[0].from = 0, missing(0, 2, 0), "needs domain 0");
    refused(runs(), |p| p.local[0].from = 4, missing(4, 3, 4), "from domain 4 to domain 3");
    refused(runs(), |p| p.local[0].to = 4, missing(8, 4, 4), "from domain 8 to domain 4");
}

#[test]
fn source_and_target_of_different_sizes_are_found() {
    let unequal = |from, to, source: &str, target: &str| PatternError::UnequalCells {
        from,
        to,
        source_cells: source.to_owned(),
        target_cells: target.to_owned(),
    };
    let boxes = unequal(0, 1, "a box of [2] cells from [2]", "a box of [1] cells from [-2]");
    refused(regular(), |p| p.peers[0].receives[0].target = line(-2, 1), boxes, "takes a box of [2] cells");
    let counts = unequal(20, 3, "3 cells in 1 runs", "2 cells in 1 runs");
    refused(runs(), |p| p.peers[0].receives[0].target = list(&[(5, 2)]), counts, "fills 2 cells in 1 runs");
    let kinds = unequal(3, 20, "3 cells in 2 runs", "a box of [3] cells from [0]");
    refused(runs(), |p| p.peers[0].sends[0].target = line(0, 3), kinds, "as many");
}

#[test]
fn cells_of_the_wrong_kind_are_found() {
    let wrong = |domain, cells: &str, shape: &str| PatternError::WrongCells {
        domain,
        cells: cells.to_owned(),
        shape: shape.to_owned(),
    };
    let both = |cells: Cells| {
        move |p: &mut PatternPlan| {
            (p.peers[0].receives[0].source, p.peers[0].receives[0].target) = (cells.clone(), cells)
        }
    };
    let shape = "[4] cells with halo widths [(2, 2)]";
    refused(
        regular(),
        both(list(&[(0, 2)])),
        wrong(1, "2 cells in 1 runs", shape),
        "cannot be cells of domain 1",
    );
    refused(regular(), both(line(-1, 0)), wrong(1, "a box of [0] cells from [-1]", shape), "[0] cells");
    let plane = Cells::Box(BoxCells { low: vec![-1, 0], extent: vec![1, 1] });
    refused(
        regular(),
        both(plane),
        wrong(1, "a box of [1, 1] cells from [-1, 0]", shape),
        "which is [4] cells",
    );
    let ragged = Cells::Box(BoxCells { low: vec![-1, 0], extent: vec![1] });
    refused(
        regular(),
        both(ragged),
        wrong(1, "a box of [1] cells from [-1, 0]", shape),
        "which is [4] cells",
    );
    let shape = "a list of 10 cells";
    refused(runs(), both(line(0, 2)), wrong(3, "a box of [2] cells from [0]", shape), "a list of 10 cells");
    refused(runs(), both(list(&[(5, 0)])), wrong(3, "0 cells in 1 runs", shape), "domain 3");
}

#[test]
fn a_shape_without_a_width_for_each_axis_is_found() {
    let spoil = |p: &mut PatternPlan| {
        p.domains[0].1 = DomainShape::Regular { first: vec![4], owned: vec![4], halo: vec![] };
    };
    refused(
        regular(),
        spoil,
        PatternError::AxisCount { what: "halo widths", given: 0, axes: 1 },
        "0 halo widths",
    );
}

#[test]
fn cells_outside_the_domain_are_found() {
    let outside = |domain, cell: &str| PatternError::OutsideDomain { domain, cell: cell.to_owned() };
    refused(regular(), |p| p.peers[0].receives[0].target = line(-3, 2), outside(1, "[-3]"), "cell [-3]");
    refused(regular(), |p| p.peers[1].receives[0].target = line(5, 2), outside(1, "[6]"), "domain 1");
    refused(
        regular(),
        |p| p.peers[1].sends[0].source = line(i64::MAX, 2),
        outside(1, &format!("[{}]", i64::MAX)),
        "",
    );
    let far = |p: &mut PatternPlan| p.peers[0].receives[0].target = list(&[(8, 3)]);
    refused(runs(), far, outside(3, "10"), "cell 10 is not in domain 3");
    let farther = |p: &mut PatternPlan| p.peers[0].sends[0].source = list(&[(u32::MAX, 3)]);
    refused(runs(), farther, outside(3, "4294967295"), "cell 4294967295");
}

#[test]
fn a_halo_cell_that_is_sent_is_found() {
    let sent = |domain, cell: &str| PatternError::SendsHalo { domain, cell: cell.to_owned() };
    refused(regular(), |p| p.peers[1].sends[0].source = line(3, 2), sent(1, "[4]"), "cell [4] of domain 1");
    refused(regular(), |p| p.peers[1].sends[0].source = line(-1, 2), sent(1, "[-1]"), "not an owned cell");
    refused(runs(), |p| p.peers[0].sends[0].source = list(&[(7, 3)]), sent(3, "9"), "cell 9 of domain 3");
}

#[test]
fn an_owned_cell_that_is_received_is_found() {
    let received = |cell: &str| PatternError::ReceivesOwned { domain: 1, cell: cell.to_owned() };
    refused(
        regular(),
        |p| p.peers[0].receives[0].target = line(-1, 2),
        received("[0]"),
        "cell [0] of domain 1",
    );
    refused(
        regular(),
        |p| p.peers[1].receives[0].target = line(3, 2),
        received("[3]"),
        "it is an owned cell",
    );
}

#[test]
fn a_cell_that_is_received_twice_is_found() {
    let twice = |domain, cell: &str| PatternError::ReceivedTwice { domain, cell: cell.to_owned() };
    let again = |p: &mut PatternPlan| {
        let transfer = transfer(2, 1, line(0, 1), line(-1, 1));
        p.peers[1].receives.push(transfer);
    };
    refused(regular(), again, twice(1, "[-1]"), "halo cell [-1] of domain 1");
    // Once from a peer, once from a domain of this rank.
    refused(runs(), |p| p.local[0].target = list(&[(6, 1)]), twice(3, "6"), "halo cell 6 of domain 3");
}

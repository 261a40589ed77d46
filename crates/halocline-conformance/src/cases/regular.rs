//! Exchanges on regular grids: every path, dimension, width, border and decomposition.

use crate::fixtures::{Fixture, Grid, by, ring, shares_memory};
use crate::form::{Form, Kind};
use crate::stage::Stage;
use crate::subject::Role;
use crate::{Case, Outcome, Trouble, ensure, fail};
use halocline::{ElementType, LinkChoice, LinkCounts, LinkPath, Neighbours, RegularGrid};

pub(crate) const CASES: &[Case] = &[
    Case { name: "regular::links_take_the_requested_path", run: paths },
    Case { name: "regular::one_to_four_dimensions", run: dimensions },
    Case { name: "regular::asymmetric_and_zero_widths", run: widths },
    Case { name: "regular::halos_wider_than_the_neighbours", run: wide },
    Case { name: "regular::periodic_over_one_and_two_ranks", run: periodic },
    Case { name: "regular::axes_of_one_cell", run: thin },
    Case { name: "regular::several_domains_on_each_rank", run: several_domains },
    Case { name: "regular::staggered_points_beside_cells_in_one_bind", run: staggered },
    Case { name: "regular::faces_only_and_without_corners", run: faces },
    Case { name: "regular::boxes_with_a_rank_that_has_none", run: boxes },
    Case { name: "regular::measured_links_of_large_fields", run: measured },
    Case { name: "regular::a_thousand_steps", run: many_steps },
    Case { name: "regular::one_way_only", run: one_way },
    Case { name: "regular::a_width_of_zero_exchanges_nothing", run: nothing },
];

/// A few steps by every path.
fn every_path(comm: &Stage<'_>, grid: &Grid) -> Outcome {
    Fixture::simple(comm, grid)?.every_path(comm, 3)
}

fn paths(comm: &Stage<'_>) -> Outcome {
    let mut fixture = Fixture::simple(comm, &ring(comm)?)?;
    let peers = match comm.size() {
        1 => 0,
        2 => 1,
        _ => 2,
    };
    for link in comm.paths() {
        let halo = fixture.bind(comm, &by(link))?;
        let counts: LinkCounts = halo.links().collect();
        let expected = match link {
            LinkChoice::Message => (0, 0, 2 * peers),
            LinkChoice::Mailbox | LinkChoice::DeviceMailbox => (0, 2 * peers, 0),
            LinkChoice::Push | LinkChoice::Pull => (2 * peers, 0, 0),
            LinkChoice::Auto => (counts.direct, counts.mailbox, 2 * peers - counts.direct - counts.mailbox),
            other => fail!("the case does not know {other:?}"),
        };
        let found = (counts.direct, counts.mailbox, counts.message);
        ensure!(found == expected, "{link:?}: {counts:?} instead of {expected:?}");
        let text = halo.explain();
        ensure!(
            comm.is_on_device() == text.contains("fields on devices"),
            "where do its fields lie?\n{text}"
        );
        for peer in crate::fixtures::ring_neighbours(comm.rank(), comm.size()) {
            let named =
                text.contains(&format!("to rank {peer}")) && text.contains(&format!("from rank {peer}"));
            ensure!(named, "{link:?}: the explanation does not name rank {peer}:\n{text}");
        }
        fixture.steps(&halo, 5)?;
    }
    if !shares_memory(comm) {
        for link in [LinkChoice::Push, LinkChoice::Pull, LinkChoice::DeviceMailbox, LinkChoice::Mailbox] {
            ensure!(fixture.bind(comm, &by(link)).is_err(), "{link:?} without shared memory");
        }
    }
    Ok(())
}

fn dimensions(comm: &Stage<'_>) -> Outcome {
    let n = 2 * comm.size();
    for (extents, periodic) in [
        (&[n + 1][..], &[false][..]),
        (&[n + 1], &[true]),
        (&[n, 7], &[true, false]),
        (&[6, n], &[true, true]),
        (&[4, n, 5], &[false, true, true]),
        (&[3, 4, n, 3], &[true, false, true, true]),
    ] {
        every_path(comm, &Grid::new(comm.size(), extents, periodic, 1)?)?;
    }
    Ok(())
}

fn widths(comm: &Stage<'_>) -> Outcome {
    let decompose = || RegularGrid::new([4 * comm.size(), 6]).periodic([true, false]).decompose(comm.size());
    for widths in [[(2, 1), (0, 3)], [(0, 2), (1, 0)], [(3, 0), (0, 0)], [(0, 1), (2, 2)]] {
        every_path(comm, &Grid::cut(decompose()?, &[true, false], &widths))?;
    }
    Ok(())
}

fn wide(comm: &Stage<'_>) -> Outcome {
    for (extents, periodic, width) in
        [([comm.size(), 3], [false, true], 2), ([2 * comm.size(), 2], [true, true], 5)]
    {
        let decomposition =
            RegularGrid::new(extents).periodic(periodic).decompose_into([comm.size(), 1], comm.size())?;
        every_path(comm, &Grid::cut(decomposition, &periodic, &[(width, width), (1, width)]))?;
    }
    Ok(())
}

fn periodic(comm: &Stage<'_>) -> Outcome {
    // The first axis lies on one rank, or on two that are each other's neighbour on both sides.
    for across in [1, 2] {
        if comm.size().is_multiple_of(across) {
            let blocks = [across, comm.size() / across];
            let extents = [5 * across, 2 * blocks[1]];
            let decomposition =
                RegularGrid::new(extents).periodic([true, true]).decompose_into(blocks, comm.size())?;
            every_path(comm, &Grid::cut(decomposition, &[true, true], &[(2, 1), (1, 2)]))?;
        }
    }
    Ok(())
}

fn thin(comm: &Stage<'_>) -> Outcome {
    for periodic in [[true, true, true], [false, false, true], [true, true, false]] {
        every_path(comm, &Grid::new(comm.size(), &[1, comm.size() + 2, 1], &periodic, 1)?)?;
    }
    Ok(())
}

fn several_domains(comm: &Stage<'_>) -> Outcome {
    let periodic = [true, false];
    for domains in [2, 3] {
        let grid = RegularGrid::new([3 * comm.size(), 4 * domains]).periodic(periodic);
        let decomposition = grid.domains_per_rank(domains).decompose(comm.size())?;
        every_path(comm, &Grid::cut(decomposition, &periodic, &[(1, 2), (2, 1)]))?;
    }
    Ok(())
}

fn staggered(comm: &Stage<'_>) -> Outcome {
    for (periodic, domains) in
        [([false, false], 1), ([true, false], 1), ([false, true], 2), ([true, true], 3)]
    {
        let grid = RegularGrid::new([3 * comm.size() + 1, 4 * domains + 1]).periodic(periodic);
        let cells = grid.domains_per_rank(domains).decompose(comm.size())?;
        let mut fixture = Fixture::default();
        for (number, axes) in (0..).zip([[false, false], [true, false], [false, true], [true, true]]) {
            let points = Grid::cut(cells.staggered(axes)?, &periodic, &[(1, 2), (2, 1)]);
            let pattern = points.pattern(comm)?;
            let kind = Kind::plain(ElementType::F64);
            let subjects =
                points.subjects(comm, &pattern, number, (&kind, comm.home()), |_| Form::default())?;
            fixture.add(&pattern, subjects);
        }
        fixture.every_path(comm, 2)?;
    }
    Ok(())
}

fn faces(comm: &Stage<'_>) -> Outcome {
    let periodic = [true, true, false];
    let decomposition = RegularGrid::new([2 * comm.size(), 6, 4])
        .periodic(periodic)
        .domains_per_rank(2)
        .decompose(comm.size())?;
    let mut filled = Vec::new();
    for neighbours in [Neighbours::Faces, Neighbours::FacesAndEdges, Neighbours::All] {
        let grid = Grid { neighbours, ..Grid::cut(decomposition.clone(), &periodic, &[(1, 1); 3]) };
        let mut fixture = Fixture::simple(comm, &grid)?;
        filled.push(fixture.halo_cells());
        fixture.every_path(comm, 2)?;
    }
    ensure!(filled[0] < filled[1] && filled[1] < filled[2], "faces, edges, corners fill {filled:?} cells");
    Ok(())
}

fn boxes(comm: &Stage<'_>) -> Outcome {
    // The last of several ranks owns nothing; rank 0 owns two boxes that do not touch each other.
    let holders = comm.size().saturating_sub(1).max(1);
    let mut list = vec![(0, vec![0, 0], vec![2, 5])];
    list.extend((1..holders).map(|rank| (rank, vec![2 * rank, 0], vec![2, 5])));
    list.push((0, vec![2 * holders, 0], vec![3, 2]));
    list.push((holders - 1, vec![2 * holders, 2], vec![3, 3]));
    let periodic = [false, true];
    let grid = RegularGrid::new([2 * holders + 3, 5]).periodic(periodic);
    let grid = Grid::cut(grid.decompose_boxes(list, comm.size())?, &periodic, &[(1, 2), (2, 1)]);
    let mut fixture = Fixture::simple(comm, &grid)?;
    let fields = fixture.subjects().count();
    ensure!((fields == 0) == (comm.rank() >= holders), "{fields} domains on rank {}", comm.rank());
    fixture.every_path(comm, 3)
}

fn measured(comm: &Stage<'_>) -> Outcome {
    // Large enough for the trials of a bind: a halo of more than 4 KiB a link.
    let periodic = [true, false, true];
    let decomposition = RegularGrid::new([2 * comm.size(), 24, 24])
        .periodic(periodic)
        .decompose_into([comm.size(), 1, 1], comm.size())?;
    let grid = Grid::cut(decomposition, &periodic, &[(1, 1), (1, 1), (1, 1)]);
    let pattern = grid.pattern(comm)?;
    let mut fixture = Fixture::default();
    for number in 0..2 {
        let kind = Kind::with_extra(ElementType::F32, &[2]);
        let subjects = grid.subjects(comm, &pattern, number, (&kind, comm.home()), |_| Form::default())?;
        fixture.add(&pattern, subjects);
    }
    let halo = fixture.bind(comm, &by(LinkChoice::Auto))?;
    fixture.steps(&halo, 4)
}

fn many_steps(comm: &Stage<'_>) -> Outcome {
    for link in comm.paths().into_iter().skip(1) {
        let mut fixture = Fixture::simple(comm, &ring(comm)?)?;
        let halo = fixture.bind(comm, &by(link))?;
        // Few enough where ranks share cores, and each step costs several switches.
        let few = comm.size() > 2 || comm.is_on_device();
        fixture.steps(&halo, if few { 100 } else { 1000 })?;
    }
    Ok(())
}

fn one_way(comm: &Stage<'_>) -> Outcome {
    // Only downwards: rank 0 never receives, the last rank never sends, links have no way back.
    let decomposition = RegularGrid::new([3 * comm.size()]).decompose(comm.size())?;
    let grid = Grid::cut(decomposition, &[false], &[(2, 0)]);
    let mut fixture = Fixture::simple(comm, &grid)?;
    let links = fixture
        .bind(comm, &by(LinkChoice::Message))?
        .links()
        .filter(|link| link.path == LinkPath::Message)
        .count();
    let expected = usize::from(comm.rank() > 0) + usize::from(comm.rank() + 1 < comm.size());
    ensure!(links == expected, "{links} links instead of {expected}");
    fixture.every_path(comm, 50)
}

fn nothing(comm: &Stage<'_>) -> Outcome {
    let grid = Grid::new(comm.size(), &[2 * comm.size(), 3], &[true, true], 0)?;
    let mut fixture = Fixture::simple(comm, &grid)?;
    let idle = fixture.subjects().all(|subject| subject.count(Role::Halo) == 0);
    ensure!(idle, "a halo of width 0 has cells");
    for link in comm.paths() {
        let halo = fixture.bind(comm, &by(link))?;
        let counts: LinkCounts = halo.links().collect();
        ensure!(counts.direct + counts.mailbox + counts.message == 0, "{link:?}: {counts:?} for no cells");
        fixture.steps(&halo, 3).map_err(|trouble| Trouble::new(format!("{link:?}: {trouble}")))?;
    }
    Ok(())
}

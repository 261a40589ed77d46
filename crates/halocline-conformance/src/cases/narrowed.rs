//! Patterns narrowed to less of their halo, on the same arrays.

use super::fixture::still_works;
use super::unstructured::rectangle;
use crate::fixtures::{Fixture, Grid, Piece, by, pattern_of, ring, subjects_of};
use crate::form::{Form, Kind};
use crate::stage::Stage;
use crate::{Case, Outcome, ensure, fail};
use halocline::{
    ElementType, Error, Halo, HaloExchange, LinkChoice, Neighbours, Partition, RegularGrid, Shared,
};

pub(crate) const CASES: &[Case] = &[
    Case { name: "narrowed::regular_halos_by_side_and_by_faces", run: regular },
    Case { name: "narrowed::fewer_levels_of_a_mesh", run: levels },
    Case { name: "narrowed::wide_and_narrow_exchanges_of_one_array", run: one_array },
    Case { name: "narrowed::a_wider_halo_is_refused", run: refused },
];

fn regular(comm: &Stage<'_>) -> Outcome {
    let (periodic, wide) = ([true, false], [(3, 2), (2, 3)]);
    let grid = RegularGrid::new([3 * comm.size() + 1, 9]).periodic(periodic).domains_per_rank(2);
    let decomposition = grid.decompose(comm.size())?;
    let pattern = Grid::cut(decomposition.clone(), &periodic, &wide).pattern(comm)?;
    for (to, filled, neighbours) in [
        (Halo::uniform(2), [(2, 2), (2, 2)], Neighbours::All),
        (Halo::per_axis([(0, 2), (1, 3)]), [(0, 2), (1, 3)], Neighbours::All),
        (Halo::uniform(1).neighbours(Neighbours::Faces), [(1, 1), (1, 1)], Neighbours::Faces),
        (Halo::uniform(0), [(0, 0), (0, 0)], Neighbours::All),
    ] {
        let narrowed = pattern.narrowed(comm, &to)?;
        let grid = Grid::cut(decomposition.clone(), &periodic, &wide);
        let grid = Grid { filled: filled.to_vec(), neighbours, ..grid };
        let kind = Kind::plain(ElementType::F32);
        let subjects = grid.subjects(comm, &narrowed, 0, (&kind, comm.home()), |_| Form::default())?;
        Fixture::of(narrowed, subjects).every_path(comm, 2)?;
    }
    Ok(())
}

fn levels(comm: &Stage<'_>) -> Outcome {
    let mesh = rectangle(4 * comm.size(), 4)?;
    let partition = Partition::block(mesh.elements().len(), comm.size())?;
    let halos = mesh.halos(&partition, comm.rank(), 3, Shared::Vertex)?;
    let edges = halos.edges()?;
    for piece in [
        Piece::of_mesh(halos.elements(), halos.owned_elements()),
        Piece::of_mesh(halos.vertices(), halos.owned_vertices()),
        Piece::of_mesh(edges.domain(), edges.owned()),
    ] {
        let mut pattern = pattern_of(comm, std::slice::from_ref(&piece))?;
        for depth in (0..=3).rev() {
            pattern = pattern.narrowed(comm, &Halo::uniform(depth))?;
            let kind = Kind::with_extra(ElementType::F64, &[2]);
            let narrow = [piece.clone().narrowed(depth)];
            let subjects = subjects_of(comm, &narrow, 0, (&kind, comm.home()), |_| Form::default())?;
            Fixture::of(pattern.clone(), subjects).every_path(comm, 2)?;
        }
    }
    Ok(())
}

fn one_array(comm: &Stage<'_>) -> Outcome {
    let decomposition = RegularGrid::new([4 * comm.size()]).periodic([true]).decompose(comm.size())?;
    let wide = Grid::cut(decomposition, &[true], &[(3, 3)]).pattern(comm)?;
    let narrow = wide.narrowed(comm, &Halo::uniform(1))?;
    let array = comm.zeros::<u64>(&[10])?;
    let cell = |at: usize| ((4 * (comm.size() + comm.rank()) + at - 3) % (4 * comm.size())) as u64;
    let wide = HaloExchange::bind_with(comm, [(&wide, &array)], &by(LinkChoice::Auto))?;
    let narrow = HaloExchange::bind_with(comm, [(&narrow, &array)], &by(LinkChoice::Auto))?;
    for step in 0..20 {
        let fresh = |at: usize| 100 * step + cell(at);
        array.change(|cells| (3..7).for_each(|at| cells[at] = fresh(at)))?;
        let (halo, width) = if step % 2 == 0 { (&wide, 3) } else { (&narrow, 1) };
        halo.exchange()?.wait()?;
        let cells = array.get()?;
        for (at, &found) in cells.iter().enumerate() {
            // What the narrow exchange leaves alone holds what the wide one left there.
            let expected = if (3 - width..7 + width).contains(&at) { fresh(at) } else { fresh(at) - 100 };
            ensure!(found == expected, "step {step}, cell {at}: {found} instead of {expected}");
        }
    }
    Ok(())
}

fn refused(comm: &Stage<'_>) -> Outcome {
    let pattern = ring(comm)?.pattern(comm)?;
    let guilty = comm.size() - 1;
    let mine = comm.rank() == guilty;
    for wider in [Halo::uniform(2), Halo::per_axis([(1, 2)])] {
        let to = if mine { wider } else { Halo::uniform(1) };
        let Err(error) = pattern.narrowed(comm, &to) else {
            fail!("a wider halo is accepted");
        };
        ensure!(error.to_string().contains("wider"), "{error}");
        ensure!(mine != matches!(error, Error::Elsewhere { .. }), "{error}");
        still_works(comm)?;
    }
    if comm.size() > 1 {
        let differs = pattern.narrowed(comm, &Halo::uniform(usize::from(mine)));
        ensure!(differs.is_err(), "halos that differ between ranks are accepted");
        still_works(comm)?;
    }
    let mesh = rectangle(2, comm.size())?;
    let partition = Partition::block(mesh.elements().len(), comm.size())?;
    let halos = mesh.halos(&partition, comm.rank(), 1, Shared::Edge)?;
    let pattern = pattern_of(comm, &[Piece::of_mesh(halos.elements(), halos.owned_elements())])?;
    for (to, says) in [(Halo::uniform(2), "depth 1"), (Halo::per_axis([(1, 1)]), "no axes")] {
        let Err(error) = pattern.narrowed(comm, &to) else { fail!("{to:?} is accepted") };
        ensure!(error.to_string().contains(says), "{error}");
        still_works(comm)?;
    }
    Ok(())
}

//! Invalid domains and decompositions: an error on every rank, never a hang.

use super::fixture::still_works;
use crate::fixtures::ring;
use crate::stage::Stage;
use crate::{Case, Outcome, ensure, fail};
use halocline::{Decomposed, Error, Halo, Pattern, PatternError, RegularGrid, UnstructuredDomain};

pub(crate) const CASES: &[Case] = &[
    Case { name: "refused_patterns::an_id_without_an_owner", run: without_owner },
    Case { name: "refused_patterns::an_id_owned_by_two_ranks", run: owned_by_two },
    Case { name: "refused_patterns::a_halo_id_that_is_also_owned", run: halo_owned },
    Case { name: "refused_patterns::an_id_twice_in_a_halo", run: halo_twice },
    Case { name: "refused_patterns::one_number_for_two_domains", run: domain_twice },
    Case { name: "refused_patterns::owners_that_are_wrong", run: wrong_owner },
    Case { name: "refused_patterns::a_decomposition_for_other_ranks", run: other_ranks },
    Case { name: "refused_patterns::another_decomposition_on_one_rank", run: other_decomposition },
    Case { name: "refused_patterns::another_halo_on_one_rank", run: other_halo },
    Case { name: "refused_patterns::more_ranks_than_cells", run: more_ranks_than_cells },
    Case { name: "refused_patterns::a_halo_with_too_many_axes", run: halo_axes },
];

/// All ranks must be refused: the ranks in `knows` by an error of their own that says all of `words`,
/// the others by such an error or by word of one of those.
fn refused(comm: &Stage<'_>, result: Result<Pattern, Error>, knows: &[usize], words: &[String]) -> Outcome {
    let Err(error) = result else { fail!("rank {} was not refused", comm.rank()) };
    let text = error.to_string();
    match &error {
        Error::Elsewhere { rank, .. } => {
            ensure!(!knows.contains(&comm.rank()), "rank {} can know itself: {text}", comm.rank());
            ensure!(*rank != comm.rank() && *rank < comm.size(), "{text}");
        }
        Error::Pattern(_) | Error::DecomposedFor { .. } | Error::Differs { .. } => {}
        other => fail!("another error: {other}"),
    }
    for word in words {
        ensure!(text.contains(word), "rank {}: {text} does not say {word:?}", comm.rank());
    }
    still_works(comm)
}

fn words<const N: usize>(words: [String; N]) -> Vec<String> {
    words.into()
}

/// A ring of unstructured domains, three cells on each rank, with cells added on this one.
fn domains(comm: &Stage<'_>, owned: &[u64], halo: &[u64]) -> Vec<UnstructuredDomain> {
    let (rank, size) = (comm.rank() as u64, comm.size() as u64);
    let mine: Vec<u64> = (3 * rank..3 * rank + 3).chain(owned.iter().copied()).collect();
    let before = (3 * rank + 3 * size - 1) % (3 * size);
    let mut wanted: Vec<u64> = halo.to_vec();
    if size > 1 {
        wanted.push(before);
    }
    vec![UnstructuredDomain::new(rank, mine, wanted)]
}

fn without_owner(comm: &Stage<'_>) -> Outcome {
    for guilty in [0, comm.size() - 1] {
        let halo: &[u64] = if comm.rank() == guilty { &[987_654] } else { &[] };
        let result = Pattern::unstructured(comm, &domains(comm, &[], halo));
        refused(comm, result, &[guilty], &words(["987654".into(), format!("domain {guilty}")]))?;
    }
    Ok(())
}

fn owned_by_two(comm: &Stage<'_>) -> Outcome {
    if comm.size() == 1 {
        return Ok(());
    }
    let (one, other) = (0, comm.size() - 1);
    let owned: &[u64] = if [one, other].contains(&comm.rank()) { &[55_555] } else { &[] };
    let result = Pattern::unstructured(comm, &domains(comm, owned, &[]));
    let said = words(["55555".into(), format!("rank {one}"), format!("rank {other}")]);
    refused(comm, result, &[one, other], &said)
}

fn halo_owned(comm: &Stage<'_>) -> Outcome {
    let guilty = comm.size() - 1;
    let mine = 3 * guilty as u64 + 1;
    let halo: &[u64] = if comm.rank() == guilty { &[mine] } else { &[] };
    let result = Pattern::unstructured(comm, &domains(comm, &[], halo));
    refused(comm, result, &[guilty], &words([format!("id {mine}"), "halo".into()]))
}

fn halo_twice(comm: &Stage<'_>) -> Outcome {
    if comm.size() == 1 {
        return Ok(());
    }
    let id = 3; // of rank 1
    let halo: &[u64] = if comm.rank() == 0 { &[id, id] } else { &[] };
    let result = Pattern::unstructured(comm, &domains(comm, &[], halo));
    refused(comm, result, &[0], &words([format!("id {id}"), "twice".into()]))
}

fn domain_twice(comm: &Stage<'_>) -> Outcome {
    if comm.size() == 1 {
        return Ok(());
    }
    let number = if comm.rank() == comm.size() - 1 { 0 } else { comm.rank() as u64 };
    let domain = UnstructuredDomain::new(number, vec![100 + comm.rank() as u64], Vec::new());
    let result = Pattern::unstructured(comm, &[domain]);
    refused(comm, result, &[0, comm.size() - 1], &words(["domain 0".into()]))
}

fn wrong_owner(comm: &Stage<'_>) -> Outcome {
    if comm.size() < 3 {
        return Ok(());
    }
    let (rank, size) = (comm.rank(), comm.size());
    let next = (rank + 1) % size;
    // Rank 0 thinks that the cell of rank 1 belongs to rank 2.
    let owner = if rank == 0 { 2 } else { next };
    let cells = vec![rank as u64, next as u64];
    let domain = UnstructuredDomain::from_owners(rank as u64, rank, cells.clone(), vec![rank, owner]);
    let result = Pattern::unstructured(comm, &[domain]);
    refused(comm, result, &[0], &words(["rank 2".into(), "rank 1".into()]))?;
    // An owner that is no rank, and a domain made for another rank.
    let owners = vec![rank, if rank == 1 { size } else { next }];
    let domain = UnstructuredDomain::from_owners(rank as u64, rank, cells.clone(), owners);
    refused(comm, Pattern::unstructured(comm, &[domain]), &[1], &words([format!("rank {size}")]))?;
    let made_for = if rank == 1 { 2 } else { rank };
    let domain = UnstructuredDomain::from_owners(rank as u64, made_for, cells, vec![rank, next]);
    refused(comm, Pattern::unstructured(comm, &[domain]), &[1], &words(["rank 2".into()]))
}

fn other_ranks(comm: &Stage<'_>) -> Outcome {
    let all: Vec<usize> = (0..comm.size()).collect();
    let decomposition = RegularGrid::new([100]).decompose(comm.size() + 1)?;
    let result = decomposition.pattern(comm, Halo::uniform(1));
    let said = words([format!("{} ranks", comm.size() + 1), comm.size().to_string()]);
    refused(comm, result, &all, &said)?;
    // On one rank only.
    let guilty = comm.size() - 1;
    let ranks = comm.size() + usize::from(comm.rank() == guilty);
    let result = RegularGrid::new([100]).decompose(ranks)?.pattern(comm, Halo::uniform(1));
    refused(comm, result, &[guilty], &said)
}

fn other_decomposition(comm: &Stage<'_>) -> Outcome {
    if comm.size() == 1 {
        return Ok(());
    }
    let guilty = comm.rank() == comm.size() - 1;
    let extent = 4 * comm.size();
    for (extent, periodic) in [(extent + 1, false), (extent, true)] {
        let grid = if guilty {
            RegularGrid::new([extent]).periodic([periodic])
        } else {
            RegularGrid::new([4 * comm.size()])
        };
        let result = grid.decompose(comm.size())?.pattern(comm, Halo::uniform(1));
        refused(comm, result, &[], &[])?;
    }
    Ok(())
}

fn other_halo(comm: &Stage<'_>) -> Outcome {
    if comm.size() == 1 {
        return Ok(());
    }
    // Wide enough that one rank waits for others that do not know of it.
    let width = if comm.rank() == comm.size() - 1 { 9 } else { 1 };
    let result = ring(comm)?.decomposition.pattern(comm, Halo::uniform(width));
    refused(comm, result, &[], &[])
}

fn more_ranks_than_cells(comm: &Stage<'_>) -> Outcome {
    match RegularGrid::new([comm.size(), 1]).decompose(comm.size() + 1) {
        Err(PatternError::MoreRanksThanCells { ranks, cells, .. }) => {
            ensure!((ranks, cells) == (comm.size() + 1, comm.size()), "{ranks} ranks, {cells} cells");
            Ok(())
        }
        other => fail!("more ranks than cells: {other:?}"),
    }
}

fn halo_axes(comm: &Stage<'_>) -> Outcome {
    let guilty = comm.size() - 1;
    let axes = if comm.rank() == guilty { 3 } else { 1 };
    let result = ring(comm)?.decomposition.pattern(comm, Halo::per_axis(vec![(1, 1); axes]));
    refused(comm, result, &[guilty], &words(["3 halo widths".into()]))
}

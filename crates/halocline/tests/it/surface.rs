//! How users begin exchanges, bind fields and write grids.

use crate::on_ranks;
use halocline::{
    Array, BindOptions, Communicator, Decomposed, Direction, ElementType, Error, Field, HaloExchange, Layout,
    Pattern, PatternError, ReduceOp, RegularGrid, UnstructuredDomain, agree,
};

fn ranks(count: usize, body: impl Fn(&Communicator) -> Result<(), Error> + Sync) {
    on_ranks(count, body).unwrap();
}

/// A row of four cells per rank with a halo of one cell.
fn row(comm: &Communicator) -> Result<Pattern, Error> {
    RegularGrid::new((4 * comm.size(),)).periodic((true,)).decompose(comm.size())?.pattern(comm, 1)
}

fn filled(comm: &Communicator, value: f64) -> Result<Array<f64>, Error> {
    let array = Array::zeros(comm, &[6])?;
    array.write()?.fill(value);
    Ok(array)
}

#[test]
fn begin_exchanges_the_chosen_set_by_start_schedule_and_await() {
    ranks(2, |comm| {
        let (pattern, me) = (row(comm)?, comm.rank() as f64);
        let levels = [filled(comm, me)?, filled(comm, me + 10.0)?];
        let sets = levels.each_ref().map(|level| [(&pattern, level)]);
        let halo = HaloExchange::bind_alternatives(comm, &sets, &BindOptions::default())?;
        let other = 1.0 - me;

        halo.begin().set(1).start()?.wait()?;
        assert_eq!(levels[1].read()?[0], other + 10.0);
        assert_eq!(levels[0].read()?[0], me, "set 0 was not exchanged");

        halo.begin().after(&[]).schedule()?.wait()?;
        assert_eq!(levels[0].read()?[5], other);

        levels[1].write()?.fill(me + 20.0);
        smol::block_on(async { halo.begin().set(1).await })?;
        assert_eq!(levels[1].read()?[5], other + 20.0);
        Ok(())
    });
}

#[test]
fn begin_keeps_the_halo_of_a_reduce_in_either_order_of_calls() {
    ranks(2, |comm| {
        let (pattern, array) = (row(comm)?, filled(comm, 1.0)?);
        let halo = HaloExchange::bind(comm, [(&pattern, &array)])?;
        halo.begin().keep_halo(true).reduce(ReduceOp::Sum).start()?.wait()?;
        assert_eq!(array.read()?[..], [1.0, 2.0, 1.0, 1.0, 2.0, 1.0]);
        halo.begin().reduce(ReduceOp::Sum).keep_halo(true).start()?.wait()?;
        assert_eq!(array.read()?[..], [1.0, 3.0, 1.0, 1.0, 3.0, 1.0]);
        halo.begin().reduce(ReduceOp::Sum).start()?.wait()?;
        assert_eq!(array.read()?[..], [0.0, 4.0, 1.0, 1.0, 4.0, 0.0]);
        Ok(())
    });
}

#[test]
fn begin_refuses_a_set_that_was_not_bound_and_takes_no_epoch() {
    ranks(1, |comm| {
        let pattern = row(comm)?;
        let array = filled(comm, 0.0)?;
        let halo = HaloExchange::bind(comm, [(&pattern, &array)])?;
        let refused = |result: Result<(), Error>| matches!(result, Err(Error::NoSuchSet { set: 3, sets: 1 }));
        assert!(refused(halo.begin().set(3).start().map(drop)));
        assert!(refused(halo.begin().set(3).schedule().map(drop)));
        assert!(refused(smol::block_on(halo.begin().set(3).into_future())));
        assert_eq!(halo.exchange()?.epoch(), 1);
        halo.wait()
    });
}

#[test]
fn lists_of_arrays_and_of_fields_bind_as_they_are() {
    ranks(2, |comm| {
        let pattern = row(comm)?;
        let (one, two) = (filled(comm, 1.0)?, filled(comm, 2.0)?);
        let bytes = Array::<u8>::zeros(comm, &[6])?;
        let arrays: Vec<(&Pattern, &Array<f64>)> = vec![(&pattern, &one), (&pattern, &two)];
        let fields: [(&Pattern, &Field); 2] = [(&pattern, &one), (&pattern, &bytes)];
        let exchange = |halo: HaloExchange| halo.exchange()?.wait();
        exchange(HaloExchange::bind(comm, &arrays)?)?;
        exchange(HaloExchange::bind(comm, &arrays[..1])?)?;
        exchange(HaloExchange::bind(comm, arrays)?)?;
        exchange(HaloExchange::bind(comm, fields)?)?;
        exchange(HaloExchange::bind(comm, ((&pattern, &one), (&pattern, &bytes), (&pattern, &*two)))?)?;
        exchange(HaloExchange::bind(comm, ())?)?;
        agree(comm, Ok::<_, Error>(()))
    });
}

#[test]
fn grids_take_arrays_slices_and_tuples() {
    let cells = |grid: RegularGrid| grid.decompose(1).unwrap().extents().to_vec();
    assert_eq!(cells(RegularGrid::new((8, 6)).periodic((true, false))), [8, 6]);
    assert_eq!(cells(RegularGrid::new((8,))), [8]);
    assert_eq!(cells(RegularGrid::new([8, 6, 4]).periodic([true; 3])), [8, 6, 4]);
    assert_eq!(cells(RegularGrid::new(vec![8, 6])), [8, 6]);
    assert_eq!(cells(RegularGrid::new(&[8, 6][..])), [8, 6]);
}

#[test]
fn a_grid_that_the_ranks_give_differently_is_refused_on_all() {
    ranks(2, |comm| {
        let pattern = RegularGrid::new((8, 6)).pattern(comm, 1)?;
        assert_eq!(pattern.domain()?.extents(), [6, 8]);
        // Rank 1 cannot decompose its grid.
        let error = RegularGrid::new((2 - comm.rank(),)).pattern(comm, 0).expect_err("two grids");
        match comm.rank() {
            0 => assert!(matches!(error, Error::Elsewhere { rank: 1, .. }), "{error}"),
            _ => assert!(matches!(error, Error::Pattern(PatternError::MoreRanksThanCells { .. })), "{error}"),
        }
        Ok(())
    });
}

#[test]
fn a_message_within_a_bound_field_is_refused() {
    ranks(2, |comm| {
        let pattern = row(comm)?;
        let mut memory = vec![0_f64; 6].into_boxed_slice();
        let base = std::ptr::NonNull::from(&mut *memory).cast::<u8>();
        let layout = Layout::c_order(ElementType::F64, &[6])?;
        // SAFETY: the box outlives the field and the object, and nothing else touches it.
        let field = unsafe { Field::from_raw(base, layout, std::sync::Arc::new(())) };
        let peer = 1 - comm.rank();
        let halo = HaloExchange::bind(comm, [(&pattern, &field)])?;
        let bytes = halo.message_bytes(peer, Direction::Send)?;
        assert_eq!(bytes, 16);
        for at in [0, 8, 32, 47 - 16] {
            // SAFETY: the bytes are of the box, which nothing else uses: the calls are refused.
            let message = unsafe { std::slice::from_raw_parts_mut(base.as_ptr().add(at), bytes) };
            let refused =
                |result| matches!(result, Err(Error::MessageInField { peer: of, field: 0 }) if of == peer);
            assert!(refused(halo.pack(peer, message)) && refused(halo.unpack(peer, message)), "at byte {at}");
        }
        halo.pack(peer, &mut vec![0; bytes])
    });
}

#[test]
fn a_field_on_a_rank_without_a_domain_is_refused_and_told_so() -> Result<(), Error> {
    let comm = Communicator::single();
    let pattern = Pattern::unstructured(&comm, &[])?;
    let t = Array::<f64>::zeros(&comm, &[4])?;
    let error = HaloExchange::bind(&comm, [(&pattern, &t)]).map(drop).unwrap_err();
    let expected =
        "pattern 0 has the domains [] on this rank; give a field only where this rank has a domain";
    assert_eq!(error.to_string(), expected);
    Ok(())
}

#[test]
fn the_domain_of_a_pattern_is_refused_unless_there_is_one() -> Result<(), Error> {
    let comm = Communicator::single();
    let of = |numbers: &[u64]| {
        let domain = |&number: &u64| UnstructuredDomain::new(number, vec![number], vec![]);
        Pattern::unstructured(&comm, &numbers.iter().map(domain).collect::<Vec<_>>())
    };
    assert_eq!(of(&[7])?.domain()?.number(), 7);
    for numbers in [&[][..], &[3, 5]] {
        let error = of(numbers)?.domain().map(drop).unwrap_err();
        let expected =
            format!("the pattern has the domains {numbers:?} on this rank, not one; use `Pattern::domains`");
        assert_eq!(error.to_string(), expected);
        assert!(matches!(error, Error::NotOneDomain { .. }));
    }
    Ok(())
}

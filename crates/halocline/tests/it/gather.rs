//! A distributed field as one array on one rank, and as a file.

use crate::on_ranks;
use halocline::{
    Array, ArrayError, Communicator, Decomposed, Element, ElementType, Error, Field, GatherError, Halo,
    Layout, NamedElement, Pattern, Redistribute, RegularGrid, UnstructuredDomain,
};
use std::path::Path;

/// The value of a cell of a 7 x 5 grid, at a level of 3.
fn value(x: usize, y: usize, level: usize) -> f64 {
    (100 * x + 10 * y + level) as f64
}

/// This rank's part of a field on a 7 x 5 grid with levels last; halo cells hold -1.
fn part(comm: &Communicator, pattern: &Pattern) -> Result<Array<f64>, Error> {
    let halocline::plan::DomainShape::Regular { first, owned, halo } = &pattern.plan().domains[0].1 else {
        panic!("a regular domain")
    };
    let extents: Vec<usize> = (0..2).map(|axis| owned[axis] + halo[axis].0 + halo[axis].1).collect();
    let array = Array::<f64>::zeros(comm, &[extents[0], extents[1], 3])?;
    array.write()?.fill(-1.0);
    for x in 0..owned[0] {
        for y in 0..owned[1] {
            for level in 0..3 {
                let at = ((x + halo[0].0) * extents[1] + y + halo[1].0) * 3 + level;
                array.write()?[at] = value(x + first[0] as usize, y + first[1] as usize, level);
            }
        }
    }
    Ok(array)
}

fn grid(comm: &Communicator) -> Result<Pattern, Error> {
    let grid = RegularGrid::new([7, 5]).periodic([true, false]);
    grid.decompose(comm.size())?.pattern(comm, Halo::uniform(1))
}

fn expected() -> Vec<f64> {
    let cells = (0..7).flat_map(|x| (0..5).map(move |y| (x, y)));
    cells.flat_map(|(x, y)| (0..3).map(move |level| value(x, y, level))).collect()
}

#[test]
fn owned_cells_of_a_grid_become_one_array_on_any_rank() -> Result<(), Error> {
    for ranks in [1, 2, 4] {
        on_ranks(ranks, |comm| {
            let pattern = grid(comm)?;
            let part = part(comm, &pattern)?;
            for root in 0..ranks {
                let all = pattern.gather_to::<f64>(comm, root, &[&part])?;
                assert_eq!(all.is_some(), comm.rank() == root);
                if let Some(all) = all {
                    assert_eq!(all.layout().extents(), [7, 5, 3]);
                    assert_eq!(all.read()?[..], expected());
                }
            }
            Ok(())
        })?;
    }
    Ok(())
}

#[test]
fn cells_of_unstructured_domains_are_gathered_by_ascending_id() -> Result<(), Error> {
    on_ranks(2, |comm| {
        // Rank 0 owns the odd ids, in descending order, and rank 1 the even ones; the last rank owns id 1,000, too.
        let (domain, values) = match comm.rank() {
            0 => (UnstructuredDomain::new(0, vec![5, 3, 1], vec![4]), vec![5.0, 3.0, 1.0, -1.0]),
            _ => (UnstructuredDomain::new(1, vec![2, 4, 1000], vec![1]), vec![2.0, 4.0, 1000.0, -1.0]),
        };
        let pattern = Pattern::unstructured(comm, &[domain])?;
        let part = Array::<f64>::zeros(comm, &[4])?;
        part.write()?.copy_from_slice(&values);
        let all = pattern.gather_to::<f64>(comm, 1, &[&part])?;
        assert_eq!(all.is_some(), comm.rank() == 1);
        if let Some(all) = all {
            assert_eq!(all.read()?[..], [1.0, 2.0, 3.0, 4.0, 5.0, 1000.0]);
        }
        Ok(())
    })
}

#[test]
fn a_rank_without_a_domain_can_gather_all() -> Result<(), Error> {
    on_ranks(2, |comm| {
        let boxes = vec![(0, vec![0, 0], vec![7, 5])];
        let pattern = RegularGrid::new([7, 5]).decompose_boxes(boxes, 2)?.pattern(comm, Halo::uniform(1))?;
        let part = if comm.rank() == 0 { Some(part(comm, &pattern)?) } else { None };
        let fields: Vec<&Field> = part.iter().map(|part| &**part).collect();
        if let Some(all) = pattern.gather_to::<f64>(comm, 1, &fields)? {
            assert_eq!(all.read()?[..], expected());
        }
        Ok(())
    })
}

#[test]
fn wrong_roots_and_elements_are_refused_on_all_ranks() -> Result<(), Error> {
    on_ranks(2, |comm| {
        let pattern = grid(comm)?;
        let part = part(comm, &pattern)?;
        let beyond = pattern.gather_to::<f64>(comm, 2, &[&part]).expect_err("there is no rank 2");
        assert!(beyond.to_string().contains("rank 2"), "{beyond}");
        let outcome = match comm.rank() {
            0 => pattern.gather_to::<f64>(comm, 0, &[&part]).map(drop),
            _ => pattern.gather_to::<f32>(comm, 0, &[&part]).map(drop),
        };
        let error = outcome.expect_err("the types differ");
        assert!(error.to_string().contains("field 0 has elements of float64, not float32"), "{error}");
        let error = pattern.gather_to::<f64>(comm, comm.rank(), &[&part]).expect_err("the roots differ");
        assert!(error.to_string().contains("rank 1 has another root than rank 0"), "{error}");
        let error = pattern.save(comm, "t.nc", &part).expect_err("there is no such format");
        assert!(matches!(error, Error::Gather(GatherError::Format { .. })), "{error}");
        Ok(())
    })
}

#[test]
fn a_zarr_array_replaces_nothing_but_an_array_of_zarr() -> Result<(), Error> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    on_ranks(2, |comm| {
        let pattern = grid(comm)?;
        let part = part(comm, &pattern)?;
        let file = folder.path().join("t.zarr");
        if comm.rank() == 0 {
            std::fs::write(&file, "text").expect("a file is written");
        }
        let error = pattern.save(comm, &file, &part).expect_err("a file is there");
        match (comm.rank(), &error) {
            (0, Error::Gather(GatherError::NotAnArray { path })) => assert_eq!(*path, file),
            (1, Error::Elsewhere { .. }) => {}
            _ => panic!("{error}"),
        }
        assert_eq!(std::fs::read(&file).expect("it is there still"), b"text");
        Ok(())
    })
}

#[test]
fn what_cannot_be_gathered_or_saved_is_refused_by_its_type() -> Result<(), Error> {
    let comm = Communicator::single();
    let pattern = RegularGrid::new([6]).domains_per_rank(2).decompose(1)?.pattern(&comm, Halo::uniform(0))?;
    let part = Array::<f64>::zeros(&comm, &[3])?;
    let parts = [part.on_domain(0), part.on_domain(1)];
    let gathered = |fields: &[&Field]| pattern.gather_to::<f64>(&comm, 0, fields).expect_err("refused");
    let error = gathered(&[]);
    let is_refused = |error: &Error, fields| matches!(error, Error::Gather(GatherError::FieldCount { fields: n, .. }) if *n == fields);
    assert!(is_refused(&error, 0), "{error}");
    let error = gathered(&[&parts[0]]);
    assert_eq!(
        error.to_string(),
        "domain 1 of this rank has 0 fields; give one field for each domain of this rank"
    );
    let error = gathered(&[&parts[0], &parts[1], &parts[1]]);
    assert!(is_refused(&error, 2), "{error}");
    let empty = Pattern::unstructured(&comm, &[])?;
    let error = empty.gather_to::<f64>(&comm, 0, ()).expect_err("no domain");
    assert!(matches!(error, Error::Gather(GatherError::NoField)), "{error}");
    let of_field_1 = |field: &Field| match gathered(&[&parts[0], field]) {
        Error::GatheredField { field: 1, error } => *error,
        other => panic!("an error of no field: {other}"),
    };
    let error = of_field_1(&part);
    let is_refused =
        matches!(&error, Error::Gather(GatherError::WhichDomain { domains }) if domains[..] == [0, 1]);
    assert!(is_refused, "{error}");
    let error = of_field_1(&part.on_domain(9));
    let is_refused = matches!(&error, Error::Gather(GatherError::NotOnRank { domain: 9, domains }) if domains[..] == [0, 1]);
    assert!(is_refused, "{error}");
    let error = pattern.gather_to::<f32>(&comm, 0, &[&parts[0], &parts[1]]).expect_err("another type");
    let named = |element| NamedElement { element, name: None };
    let (found, wanted) = (named(ElementType::F64), named(ElementType::F32));
    let expected = GatherError::OtherElements { field: 0, found, wanted };
    assert_eq!(error.to_string(), expected.to_string());
    let error = pattern.save(&comm, "/dev/null/t.npy", [&parts[0], &parts[1]]).expect_err("no folder");
    assert!(matches!(&error, Error::Save { path, .. } if path == Path::new("/dev/null/t.npy")), "{error}");
    Ok(())
}

#[test]
fn fields_with_other_levels_or_elements_are_named_on_all_ranks() -> Result<(), Error> {
    on_ranks(2, |comm| {
        let pattern = RegularGrid::new([8]).domains_per_rank(2).decompose(2)?.pattern(comm, 0)?;
        let numbers: Vec<u64> = pattern.domains().map(|domain| domain.number()).collect();
        let of_levels = |levels: [usize; 2]| -> Result<Vec<Field>, Error> {
            let parts = levels.iter().zip(&numbers);
            parts.map(|(&levels, &id)| Ok(Array::<f64>::zeros(comm, &[2, levels])?.on_domain(id))).collect()
        };
        let refused = |levels| -> Result<Error, Error> {
            Ok(pattern.gather_to::<f64>(comm, 0, of_levels(levels)?).expect_err("they differ"))
        };
        // A rank's own fields differ: rank 1 finds it.
        let text = refused(if comm.rank() == 0 { [3, 3] } else { [3, 2] })?.to_string();
        let expected = "field 1 of rank 1 has 2 x float64 (extra dimensions [2]) for each cell, a field of rank 1 has 3 x float64 (extra \
            dimensions [3]); give fields with the same elements and extra dimensions";
        assert!(text.contains(expected), "{text}");
        // Those of two ranks differ.
        let error = refused(if comm.rank() == 0 { [3, 3] } else { [4, 4] })?;
        let is_refused =
            matches!(error, Error::Gather(GatherError::CellsDiffer { rank: 1, field: 0, of: 0, .. }));
        assert!(is_refused, "{error}");
        let text = error.to_string();
        let expected = "field 0 of rank 1 has 4 x float64 (extra dimensions [4]) for each cell, a field of rank 0 has 3 x float64";
        assert!(text.contains(expected), "{text}");
        assert!(pattern.gather_to::<f64>(comm, 0, of_levels([3, 3])?).is_ok());
        // An extra dimension of extent 1 changes nothing.
        let flat = Array::<f64>::zeros(comm, &[2])?.on_domain(numbers[0]);
        let deep = Array::<f64>::zeros(comm, &[2, 1])?.on_domain(numbers[1]);
        assert!(pattern.gather_to::<f64>(comm, 0, [flat, deep]).is_ok());
        Ok(())
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Element)]
#[repr(C)]
struct Wind {
    east: f64,
    north: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Element)]
#[repr(C)]
struct Station {
    id: u64,
    height: f64,
}

#[test]
fn structs_of_one_size_are_not_taken_for_each_other() -> Result<(), Error> {
    on_ranks(2, |comm| {
        let pattern = RegularGrid::new((4,)).decompose(2)?.pattern(comm, 0)?;
        let wind = Array::<Wind>::zeros(comm, &[2])?;
        assert!(pattern.gather_to::<Wind>(comm, 0, &[&wind]).is_ok());
        let error = pattern.gather_to::<Station>(comm, 0, &[&wind]).expect_err("another struct");
        let Error::Gather(GatherError::OtherElements { field: 0, .. }) = error else { panic!("{error}") };
        let expected = "field 0 has elements of Wind { east: f64, north: f64 }, not Station { id: u64, height: f64 }; call \
            gather_to with that type, or gather_field_to";
        assert_eq!(error.to_string(), expected);
        // Each rank has the error of a rank that asks for another one.
        let error = match comm.rank() {
            0 => pattern.gather_to::<Wind>(comm, 0, &[&wind]).map(drop),
            _ => pattern.gather_to::<Station>(comm, 0, &[&wind]).map(drop),
        };
        assert!(error.expect_err("another struct on rank 1").to_string().contains("not Station"));

        let error = Array::<Station>::with_layout(comm, wind.layout().clone()).expect_err("another struct");
        assert!(matches!(error, Error::Array(ArrayError::Element { .. })), "{error}");
        let text = error.to_string();
        let expected = "an array of Station { id: u64, height: f64 } (16 bytes) cannot have a layout of Wind { east: f64, north: f64 }";
        assert!(text.starts_with(expected), "{text}");
        Ok(())
    })
}

#[test]
fn a_field_of_the_wrong_shape_or_domain_is_named_by_its_number() -> Result<(), Error> {
    on_ranks(2, |comm| {
        let pattern =
            RegularGrid::new([7, 5]).domains_per_rank(2).decompose(2)?.pattern(comm, Halo::uniform(1))?;
        let part = |at: usize| {
            let (number, shape) = &pattern.plan().domains[at];
            Ok::<_, Error>(Array::<f64>::zeros(comm, &shape.extents())?.on_domain(*number))
        };
        let (first, second) = (part(0)?, part(1)?);
        let small = Array::<f64>::zeros(comm, &[3])?.on_domain(pattern.plan().domains[1].0);
        let elsewhere = first.on_domain(99);
        let unnamed = Array::<f64>::zeros(comm, &[3])?;
        for (wrong, text) in [
            (&small, "the array's shape is (3)"),
            (&elsewhere, "domain 99 is not on this rank"),
            (&*unnamed, "say which one a field belongs to"),
        ] {
            // Refused on rank 1 only.
            let given = if comm.rank() == 1 { wrong } else { &second };
            let error = pattern.gather_to::<f64>(comm, 0, &[&first, given]).expect_err("a wrong field");
            assert!(error.to_string().contains(text), "{error}");
            if comm.rank() == 1 {
                assert!(matches!(error, Error::GatheredField { field: 1, .. }), "{error}");
            }
            assert!(!error.to_string().contains("side"), "{error}");
        }
        assert!(pattern.gather_to::<f64>(comm, 0, &[&first, &second])?.is_some() == (comm.rank() == 0));
        Ok(())
    })
}

#[test]
fn a_saved_field_is_a_file_of_numpy_and_an_error_leaves_the_older_one() -> Result<(), Error> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("t.npy");
    on_ranks(3, |comm| {
        let pattern = grid(comm)?;
        let part = part(comm, &pattern)?;
        pattern.save(comm, &path, [&part])?;
        let bytes = std::fs::read(&path).expect("the file is there");
        let (head, elements) = bytes.split_at(bytes.len() - 7 * 5 * 3 * 8);
        assert!(
            String::from_utf8_lossy(head)
                .contains("'descr': '<f8', 'fortran_order': False, 'shape': (7, 5, 3)")
        );
        let elements: Vec<f64> =
            elements.as_chunks().0.iter().map(|&bytes| f64::from_le_bytes(bytes)).collect();
        assert_eq!(elements, expected());
        // Two fields for one domain: refused before anything is written.
        pattern.save(comm, &path, [&part, &part]).expect_err("two fields of one domain");
        assert_eq!(std::fs::read(&path).expect("the file is there"), bytes);
        let error = pattern.save(comm, folder.path().join("no/such/t.npy"), [&part]).expect_err("no folder");
        assert!(error.to_string().contains("no/such/t.npy"), "{error}");
        Ok(())
    })
}

#[test]
fn a_field_saved_as_zarr_is_its_metadata_and_its_chunk() -> Result<(), Error> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("t.zarr");
    on_ranks(2, |comm| {
        let pattern = grid(comm)?;
        let part = part(comm, &pattern)?;
        // The second replaces the first.
        pattern.save(comm, &path, [&part])?;
        pattern.save(comm, &path, [&part])?;
        let metadata = std::fs::read_to_string(path.join("zarr.json")).expect("the metadata is there");
        let metadata: String = metadata.split_whitespace().collect();
        assert!(metadata.contains("\"shape\":[7,5,3]") && metadata.contains("\"float64\""), "{metadata}");
        let chunk = std::fs::read(path.join("c/0/0/0")).expect("the chunk is there");
        let elements: Vec<f64> = chunk.as_chunks().0.iter().map(|&bytes| f64::from_le_bytes(bytes)).collect();
        assert_eq!(elements, expected());
        let error = pattern.save(comm, folder.path().join("no/such/t.zarr"), [&part]).expect_err("no folder");
        assert!(error.to_string().contains("no/such/t.zarr"), "{error}");
        Ok(())
    })?;
    assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 1, "files are left beside");
    Ok(())
}

#[test]
fn elements_without_a_zarr_type_and_redistributions_are_refused_on_all_ranks() -> Result<(), Error> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    on_ranks(2, |comm| {
        let pattern = RegularGrid::new((4,)).decompose(2)?.pattern(comm, 0)?;
        let layout = Layout::c_order(ElementType::Opaque(12), &[2])?;
        let records = Field::allocate(comm, layout)?;
        let error = pattern.save(comm, folder.path().join("t.zarr"), [&records]).expect_err("no such type");
        // Each rank with a field finds it: before the gather.
        let Error::FileElement { format: "Zarr", element: found, instead: ".npy" } = error else {
            panic!("another error: {error}")
        };
        assert_eq!(found.element, ElementType::Opaque(12));
        pattern.save(comm, folder.path().join("t.npy"), [&records])?;

        let me = comm.rank() as u64;
        let side = |id| [UnstructuredDomain::new(id, vec![me], vec![])];
        let moved = Redistribute::unstructured(comm, &side(me), &side(2 + me))?;
        let error = moved.pattern().gather_to::<f64>(comm, 0, ()).expect_err("two sides");
        assert!(matches!(error, Error::OfRedistribution { what: "gathered" }), "{error}");
        let error = moved.pattern().narrowed(comm, &Halo::uniform(0)).expect_err("no halo");
        assert!(matches!(error, Error::OfRedistribution { what: "narrowed" }), "{error}");
        Ok(())
    })
}

#[test]
fn different_paths_are_refused_on_all_ranks() -> Result<(), Error> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    on_ranks(2, |comm| {
        let pattern = grid(comm)?;
        let part = part(comm, &pattern)?;
        let path = folder.path().join(["t.npy", "t.zarr"][comm.rank()]);
        let error = pattern.save(comm, path, [&part]).expect_err("the paths differ");
        match comm.rank() {
            0 => assert!(matches!(error, Error::Elsewhere { rank: 1, .. }), "{error}"),
            _ => assert!(matches!(error, Error::Differs { rank: 1, what: "path" }), "{error}"),
        }
        Ok(())
    })?;
    assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 0, "a file was written");
    Ok(())
}

#[test]
fn fields_of_columns_first_layouts_are_gathered_by_their_axes() -> Result<(), Error> {
    on_ranks(2, |comm| {
        let pattern = RegularGrid::new([4]).decompose(2)?.pattern(comm, Halo::uniform(1))?;
        let cells = pattern.plan().domains[0].1.extents()[0];
        let layout = Layout::c_order(halocline::ElementType::I32, &[2, cells])?.with_axes(&[1])?;
        let part = Array::<i32>::with_layout(comm, layout)?;
        let first = 2 * comm.rank() as i32;
        let halocline::plan::DomainShape::Regular { halo, .. } = &pattern.plan().domains[0].1 else {
            panic!("a regular domain")
        };
        let low = halo[0].0;
        for level in 0..2 {
            for cell in 0..2 {
                part.write()?[level * cells + low + cell] = 10 * level as i32 + first + cell as i32;
            }
        }
        if let Some(all) = pattern.gather_to::<i32>(comm, 0, &[&part])? {
            assert_eq!(
                (all.layout().extents(), &all.read()?[..]),
                (&[4, 2][..], &[0, 10, 1, 11, 2, 12, 3, 13][..])
            );
        }
        Ok(())
    })
}

//! Arrays that do not hold the cells of their domain.

use halocline_plan::{DomainShape, ElementType, Layout, LayoutError, TooSmall};

/// 8 owned cells with a halo of 2 cells before them and 1 behind.
fn domain() -> DomainShape {
    DomainShape::Regular { first: vec![0], owned: vec![8], halo: vec![(2, 1)] }
}

fn refused(cells: usize, origin: usize) -> TooSmall {
    let layout = Layout::c_order(ElementType::F64, &[cells]).unwrap().with_origin(&[origin]);
    match layout.cells_held(&domain()) {
        Err(LayoutError::TooSmall(error)) => *error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_array_that_is_too_small_is_refused_with_a_size_that_suffices() {
    let found = refused(11, 4);
    assert_eq!((found.axis, found.first, found.last), (0, 4, 11));
    assert_eq!((found.needed, found.needed_origin), (vec![13], vec![4]));
    // An origin that leaves no space for the halo: the one that is needed does.
    let found = refused(7, 0);
    assert_eq!((found.axis, found.first, found.last), (0, 0, 7));
    assert_eq!((found.needed, found.needed_origin), (vec![11], vec![2]));
}

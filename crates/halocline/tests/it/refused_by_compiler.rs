//! Programs that the compiler must refuse, one a file in `tests/refused_by_compiler`, with what it says of them. After a change of
//! wording, `TRYBUILD=overwrite` writes what it says now.

macro_rules! refused {
    ($($name:ident,)*) => {$(
        #[test]
        fn $name() {
            trybuild::TestCases::new()
                .compile_fail(concat!("tests/refused_by_compiler/", stringify!($name), ".rs"));
        }
    )*};
}

refused! {
    array_of_bool,
    array_of_char,
    element_without_unsafe,
    messages_of_any_tag,
    provider_without_unsafe,
    transport_without_unsafe,
}

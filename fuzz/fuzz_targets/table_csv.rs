#![no_main]

libfuzzer_sys::fuzz_target!(init: halocline_fuzz::seed("table_csv"), |bytes: &[u8]| {
    halocline_fuzz::guarded(halocline_fuzz::table_csv, bytes);
});

//! The functions of the chapter `tools`. Generated from `abi/*.tsv` by `cargo xtask abi`: do not edit.

use super::*;

exports! {
    fn MPI_T_category_changed PMPI_T_category_changed(update_number: *mut c_int) -> c_int
        => call_always(Scope::Tool) tools::category_changed(update_number);
    fn MPI_T_category_get_categories PMPI_T_category_get_categories(
        cat_index: c_int, len: c_int, indices: *mut c_int
    ) -> c_int
        => call_always(Scope::Tool) tools::category_get_categories(cat_index, len, indices);
    fn MPI_T_category_get_cvars PMPI_T_category_get_cvars(cat_index: c_int, len: c_int, indices: *mut c_int) -> c_int
        => call_always(Scope::Tool) tools::category_get_cvars(cat_index, len, indices);
    fn MPI_T_category_get_events PMPI_T_category_get_events(cat_index: c_int, len: c_int, indices: *mut c_int) -> c_int
        => call_always(Scope::Tool) tools::category_get_events(cat_index, len, indices);
    fn MPI_T_category_get_index PMPI_T_category_get_index(name: *const c_char, cat_index: *mut c_int) -> c_int
        => call_always(Scope::Tool) tools::category_get_index(name, cat_index);
    fn MPI_T_category_get_info PMPI_T_category_get_info(
        cat_index: c_int, name: *mut c_char, name_len: *mut c_int, desc: *mut c_char, desc_len: *mut c_int,
        num_cvars: *mut c_int, num_pvars: *mut c_int, num_categories: *mut c_int
    ) -> c_int
        => call_always(Scope::Tool) tools::category_get_info(
            cat_index, name, name_len, desc, desc_len, num_cvars, num_pvars, num_categories
        );
    fn MPI_T_category_get_num PMPI_T_category_get_num(num_cat: *mut c_int) -> c_int
        => call_always(Scope::Tool) tools::category_get_num(num_cat);
    fn MPI_T_category_get_num_events PMPI_T_category_get_num_events(cat_index: c_int, num_events: *mut c_int) -> c_int
        => call_always(Scope::Tool) tools::category_get_num_events(cat_index, num_events);
    fn MPI_T_category_get_pvars PMPI_T_category_get_pvars(cat_index: c_int, len: c_int, indices: *mut c_int) -> c_int
        => call_always(Scope::Tool) tools::category_get_pvars(cat_index, len, indices);
    fn MPI_T_cvar_get_index PMPI_T_cvar_get_index(name: *const c_char, cvar_index: *mut c_int) -> c_int
        => call_always(Scope::Tool) tools::cvar_get_index(name, cvar_index);
    fn MPI_T_cvar_get_info PMPI_T_cvar_get_info(
        cvar_index: c_int, name: *mut c_char, name_len: *mut c_int, verbosity: *mut c_int,
        datatype: *mut DatatypeHandle, enumtype: *mut usize, desc: *mut c_char, desc_len: *mut c_int, bind: *mut c_int,
        scope: *mut c_int
    ) -> c_int
        => call_always(Scope::Tool) tools::cvar_get_info(
            cvar_index, name, name_len, verbosity, datatype, enumtype, desc, desc_len, bind, scope
        );
    fn MPI_T_cvar_get_num PMPI_T_cvar_get_num(num_cvar: *mut c_int) -> c_int
        => call_always(Scope::Tool) tools::cvar_get_num(num_cvar);
    fn MPI_T_cvar_handle_alloc PMPI_T_cvar_handle_alloc(
        cvar_index: c_int, obj_handle: *mut c_void, handle: *mut usize, count: *mut c_int
    ) -> c_int
        => call_always(Scope::Tool) tools::cvar_handle_alloc(cvar_index, obj_handle, handle, count);
    fn MPI_T_cvar_handle_free PMPI_T_cvar_handle_free(handle: *mut usize) -> c_int
        => call_always(Scope::Tool) tools::cvar_handle_free(handle);
    fn MPI_T_cvar_read PMPI_T_cvar_read(handle: usize, buf: *mut c_void) -> c_int
        => call_always(Scope::Tool) tools::cvar_read(handle, buf);
    fn MPI_T_cvar_write PMPI_T_cvar_write(handle: usize, buf: *const c_void) -> c_int
        => call_always(Scope::Tool) tools::cvar_write(handle, buf);
    fn MPI_T_enum_get_info PMPI_T_enum_get_info(
        enumtype: usize, num: *mut c_int, name: *mut c_char, name_len: *mut c_int
    ) -> c_int
        => call_always(Scope::Tool) tools::enum_get_info(enumtype, num, name, name_len);
    fn MPI_T_enum_get_item PMPI_T_enum_get_item(
        enumtype: usize, indx: c_int, value: *mut c_int, name: *mut c_char, name_len: *mut c_int
    ) -> c_int
        => call_always(Scope::Tool) tools::enum_get_item(enumtype, indx, value, name, name_len);
    fn MPI_T_event_callback_get_info PMPI_T_event_callback_get_info(
        event_registration: usize, cb_safety: c_int, info_used: *mut InfoHandle
    ) -> c_int
        => call_always(Scope::Tool) tools::event_callback_get_info(event_registration, cb_safety, info_used);
    fn MPI_T_event_callback_set_info PMPI_T_event_callback_set_info(
        event_registration: usize, cb_safety: c_int, info: InfoHandle
    ) -> c_int
        => call_always(Scope::Tool) tools::event_callback_set_info(event_registration, cb_safety, info);
    fn MPI_T_event_copy PMPI_T_event_copy(event_instance: usize, buffer: *mut c_void) -> c_int
        => call_always(Scope::Tool) tools::event_copy(event_instance, buffer);
    fn MPI_T_event_get_index PMPI_T_event_get_index(name: *const c_char, event_index: *mut c_int) -> c_int
        => call_always(Scope::Tool) tools::event_get_index(name, event_index);
    fn MPI_T_event_get_info PMPI_T_event_get_info(
        event_index: c_int, name: *mut c_char, name_len: *mut c_int, verbosity: *mut c_int,
        array_of_datatypes: *mut DatatypeHandle, array_of_displacements: *mut i64, num_elements: *mut c_int,
        enumtype: *mut usize, info: *mut InfoHandle, desc: *mut c_char, desc_len: *mut c_int, bind: *mut c_int
    ) -> c_int
        => call_always(Scope::Tool) tools::event_get_info(
            event_index, name, name_len, verbosity, array_of_datatypes, array_of_displacements, num_elements, enumtype,
            info, desc, desc_len, bind
        );
    fn MPI_T_event_get_num PMPI_T_event_get_num(num_events: *mut c_int) -> c_int
        => call_always(Scope::Tool) tools::event_get_num(num_events);
    fn MPI_T_event_get_source PMPI_T_event_get_source(event_instance: usize, source_index: *mut c_int) -> c_int
        => call_always(Scope::Tool) tools::event_get_source(event_instance, source_index);
    fn MPI_T_event_get_timestamp PMPI_T_event_get_timestamp(event_instance: usize, event_timestamp: *mut i64) -> c_int
        => call_always(Scope::Tool) tools::event_get_timestamp(event_instance, event_timestamp);
    fn MPI_T_event_handle_alloc PMPI_T_event_handle_alloc(
        event_index: c_int, obj_handle: *mut c_void, info: InfoHandle, event_registration: *mut usize
    ) -> c_int
        => call_always(Scope::Tool) tools::event_handle_alloc(event_index, obj_handle, info, event_registration);
    fn MPI_T_event_handle_free PMPI_T_event_handle_free(
        event_registration: usize, user_data: *mut c_void, free_cb_function: *const c_void
    ) -> c_int
        => call_always(Scope::Tool) tools::event_handle_free(event_registration, user_data, free_cb_function);
    fn MPI_T_event_handle_get_info PMPI_T_event_handle_get_info(
        event_registration: usize, info_used: *mut InfoHandle
    ) -> c_int
        => call_always(Scope::Tool) tools::event_handle_get_info(event_registration, info_used);
    fn MPI_T_event_handle_set_info PMPI_T_event_handle_set_info(event_registration: usize, info: InfoHandle) -> c_int
        => call_always(Scope::Tool) tools::event_handle_set_info(event_registration, info);
    fn MPI_T_event_read PMPI_T_event_read(event_instance: usize, element_index: c_int, buffer: *mut c_void) -> c_int
        => call_always(Scope::Tool) tools::event_read(event_instance, element_index, buffer);
    fn MPI_T_event_register_callback PMPI_T_event_register_callback(
        event_registration: usize, cb_safety: c_int, info: InfoHandle, user_data: *mut c_void,
        event_cb_function: *const c_void
    ) -> c_int
        => call_always(Scope::Tool) tools::event_register_callback(
            event_registration, cb_safety, info, user_data, event_cb_function
        );
    fn MPI_T_event_set_dropped_handler PMPI_T_event_set_dropped_handler(
        event_registration: usize, dropped_cb_function: *const c_void
    ) -> c_int
        => call_always(Scope::Tool) tools::event_set_dropped_handler(event_registration, dropped_cb_function);
    fn MPI_T_finalize PMPI_T_finalize() -> c_int
        => call_always(Scope::Tool) tools::finalize();
    fn MPI_T_init_thread PMPI_T_init_thread(required: c_int, provided: *mut c_int) -> c_int
        => call_always(Scope::Tool) tools::init_thread(required, provided);
    fn MPI_T_pvar_get_index PMPI_T_pvar_get_index(
        name: *const c_char, var_class: c_int, pvar_index: *mut c_int
    ) -> c_int
        => call_always(Scope::Tool) tools::pvar_get_index(name, var_class, pvar_index);
    fn MPI_T_pvar_get_info PMPI_T_pvar_get_info(
        pvar_index: c_int, name: *mut c_char, name_len: *mut c_int, verbosity: *mut c_int, var_class: *mut c_int,
        datatype: *mut DatatypeHandle, enumtype: *mut usize, desc: *mut c_char, desc_len: *mut c_int, bind: *mut c_int,
        readonly: *mut c_int, continuous: *mut c_int, atomic: *mut c_int
    ) -> c_int
        => call_always(Scope::Tool) tools::pvar_get_info(
            pvar_index, name, name_len, verbosity, var_class, datatype, enumtype, desc, desc_len, bind, readonly,
            continuous, atomic
        );
    fn MPI_T_pvar_get_num PMPI_T_pvar_get_num(num_pvar: *mut c_int) -> c_int
        => call_always(Scope::Tool) tools::pvar_get_num(num_pvar);
    fn MPI_T_pvar_handle_alloc PMPI_T_pvar_handle_alloc(
        session: usize, pvar_index: c_int, obj_handle: *mut c_void, handle: *mut usize, count: *mut c_int
    ) -> c_int
        => call_always(Scope::Tool) tools::pvar_handle_alloc(session, pvar_index, obj_handle, handle, count);
    fn MPI_T_pvar_handle_free PMPI_T_pvar_handle_free(session: usize, handle: *mut usize) -> c_int
        => call_always(Scope::Tool) tools::pvar_handle_free(session, handle);
    fn MPI_T_pvar_read PMPI_T_pvar_read(session: usize, handle: usize, buf: *mut c_void) -> c_int
        => call_always(Scope::Tool) tools::pvar_read(session, handle, buf);
    fn MPI_T_pvar_readreset PMPI_T_pvar_readreset(session: usize, handle: usize, buf: *mut c_void) -> c_int
        => call_always(Scope::Tool) tools::pvar_readreset(session, handle, buf);
    fn MPI_T_pvar_reset PMPI_T_pvar_reset(session: usize, handle: usize) -> c_int
        => call_always(Scope::Tool) tools::pvar_reset(session, handle);
    fn MPI_T_pvar_session_create PMPI_T_pvar_session_create(session: *mut usize) -> c_int
        => call_always(Scope::Tool) tools::pvar_session_create(session);
    fn MPI_T_pvar_session_free PMPI_T_pvar_session_free(session: *mut usize) -> c_int
        => call_always(Scope::Tool) tools::pvar_session_free(session);
    fn MPI_T_pvar_start PMPI_T_pvar_start(session: usize, handle: usize) -> c_int
        => call_always(Scope::Tool) tools::pvar_start(session, handle);
    fn MPI_T_pvar_stop PMPI_T_pvar_stop(session: usize, handle: usize) -> c_int
        => call_always(Scope::Tool) tools::pvar_stop(session, handle);
    fn MPI_T_pvar_write PMPI_T_pvar_write(session: usize, handle: usize, buf: *const c_void) -> c_int
        => call_always(Scope::Tool) tools::pvar_write(session, handle, buf);
    fn MPI_T_source_get_info PMPI_T_source_get_info(
        source_index: c_int, name: *mut c_char, name_len: *mut c_int, desc: *mut c_char, desc_len: *mut c_int,
        ordering: *mut c_int, ticks_per_second: *mut i64, max_ticks: *mut i64, info: *mut InfoHandle
    ) -> c_int
        => call_always(Scope::Tool) tools::source_get_info(
            source_index, name, name_len, desc, desc_len, ordering, ticks_per_second, max_ticks, info
        );
    fn MPI_T_source_get_num PMPI_T_source_get_num(num_sources: *mut c_int) -> c_int
        => call_always(Scope::Tool) tools::source_get_num(num_sources);
    fn MPI_T_source_get_timestamp PMPI_T_source_get_timestamp(source_index: c_int, timestamp: *mut i64) -> c_int
        => call_always(Scope::Tool) tools::source_get_timestamp(source_index, timestamp);
}

; What Go defines. `@inside` is the type of a method's receiver.
(function_declaration name: (identifier) @name) @function
(method_declaration
  receiver: (parameter_list (parameter_declaration type: [
    (type_identifier) @inside
    (generic_type type: (type_identifier) @inside)
    (pointer_type (type_identifier) @inside)
    (pointer_type (generic_type type: (type_identifier) @inside))]))
  name: (field_identifier) @name) @method
(type_spec name: (type_identifier) @name type: (struct_type (field_declaration_list) @until)) @struct
(type_spec name: (type_identifier) @name type: (interface_type)) @interface
(type_spec name: (type_identifier) @name) @type
(type_alias name: (type_identifier) @name) @type
(type_spec type: (struct_type (field_declaration_list (field_declaration (field_identifier) @name) @variable)))
(type_spec type: (interface_type (method_elem name: (field_identifier) @name) @method))
(const_spec (identifier) @name) @constant
(var_spec (identifier) @name) @variable
(func_literal) @local

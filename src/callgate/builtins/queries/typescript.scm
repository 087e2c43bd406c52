; What TypeScript defines, with and without JSX. `@local` is what hides its inside, as a function does.
(lexical_declaration (variable_declarator name: (identifier) @name value: [(arrow_function) (function_expression) (generator_function)]) @function)
(lexical_declaration (variable_declarator name: (identifier) @name) @variable)
(variable_declaration (variable_declarator name: (identifier) @name) @variable)
(function_declaration name: (identifier) @name) @function
(generator_function_declaration name: (identifier) @name) @function
(function_signature name: (identifier) @name) @function
(class_declaration name: (type_identifier) @name) @class
(abstract_class_declaration name: (type_identifier) @name) @class
(interface_declaration name: (type_identifier) @name) @interface
(enum_declaration name: (identifier) @name) @enum
(type_alias_declaration name: (type_identifier) @name) @type
(internal_module name: [(identifier) (nested_identifier)] @name) @module
(method_definition name: [(property_identifier) (private_property_identifier)] @name) @function
(interface_body (method_signature name: (property_identifier) @name) @function)
(class_body (method_signature name: (property_identifier) @name) @function)
(abstract_method_signature name: (property_identifier) @name) @function
(public_field_definition name: [(property_identifier) (private_property_identifier)] @name value: [(arrow_function) (function_expression)]) @function
(public_field_definition name: [(property_identifier) (private_property_identifier)] @name) @variable
(interface_body (property_signature name: (property_identifier) @name) @variable)
(arrow_function) @local
(function_expression) @local
(generator_function) @local

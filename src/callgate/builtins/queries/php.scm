; What PHP defines.
(class_declaration name: (name) @name) @class
(interface_declaration name: (name) @name) @interface
(trait_declaration name: (name) @name) @trait
(enum_declaration name: (name) @name) @enum
(enum_case name: (name) @name) @constant
(function_definition name: (name) @name) @function
(method_declaration name: (name) @name) @function
(property_declaration (property_element name: (variable_name (name) @name) default_value: (_)? @until)) @variable
(const_declaration (const_element . (name) @name (_) @until)) @constant
(anonymous_function) @local
(arrow_function) @local
(object_creation_expression) @local
